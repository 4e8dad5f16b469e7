"""Gives a checkpoint the vocabulary of another tokenizer: `transplant` for files, `transplant_model` in memory."""
