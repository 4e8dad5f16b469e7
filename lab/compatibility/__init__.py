"""Takes real tokenizers through every step of tokengraft and compares each with the tokenizer's own library."""
