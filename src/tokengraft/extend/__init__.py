"""New tokens for a tokenizer: `extend` learns them, `Extension` is what it learned."""
