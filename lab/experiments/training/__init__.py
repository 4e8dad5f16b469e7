"""Training of a model with several tokenizers on the same text, for the experiments that need a GPU."""
