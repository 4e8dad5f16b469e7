"""GGUF files: their tables, keys and vocabulary."""
