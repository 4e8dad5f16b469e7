"""`report`: two tokenizers in one HTML page that needs no network. `adaptation_page` is the report of an adaptation."""
