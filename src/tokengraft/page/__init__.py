"""`report`: two tokenizers in one HTML page that needs no network."""
