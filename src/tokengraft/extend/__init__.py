"""New tokens for a tokenizer: `extend` learns them, `Extension` is what it learned."""

from tokengraft.extend.continued import Limits, extend
from tokengraft.extend.extension import Extension, LearnedMerge

__all__ = ["Extension", "LearnedMerge", "Limits", "extend"]
