"""The serving stacks by name, and what an adaptation can choose so that a stack can use its result."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from math import lcm

from tokengraft.errors import OptionError

STACKS = ("transformers", "vllm", "llama.cpp", "ollama", "tiktoken", "mistral-common", "sentencepiece")
VLLM_PADDING = 64
"""vLLM pads its tables to a multiple of this, then divides them among the GPUs of tensor parallelism."""
LLAMA_CPP_SIZES = {
    32_016: "sets the ids 32,007 to 32,010 as CodeLlama's tokens for infilling",
    49_152: "turns the token at the start of text off",
}
"""What llama.cpp's converter does at a `vocab_size`, for Llama architectures."""
_NO_HOLES = {"ollama", "tiktoken", "mistral-common"}
_PAD_MULTIPLE = {"vllm": VLLM_PADDING}
_AVOIDED_ROWS = {"llama.cpp": LLAMA_CPP_SIZES}


@dataclass(frozen=True)
class Choices:
    """What to choose for stacks. Everything else works with any choice, or cannot be avoided."""

    no_holes: bool = False
    """Renumber the ids if some have no token: `Tokenizer.compact`."""
    pad_multiple: int | None = None
    """Write a multiple of this many rows: ``pad_multiple`` of `transplant`. None leaves its default."""
    avoided_rows: Collection[int] = ()
    """Numbers of rows that a converter takes for another model, unless the base has that many too."""


def choices_for(stacks: Iterable[str]) -> Choices:
    """What an adaptation can choose so that these stacks can use its result.

    Raises:
        OptionError: There is no such stack.

    >>> choices_for(["ollama"])
    Choices(no_holes=True, pad_multiple=None, avoided_rows=())
    >>> choices_for(["vllm"]).pad_multiple
    64
    """
    names = [*stacks]
    for name in names:
        require_stack(name)
    multiples = [_PAD_MULTIPLE[name] for name in names if name in _PAD_MULTIPLE]
    return Choices(
        no_holes=any(name in _NO_HOLES for name in names),
        pad_multiple=lcm(*multiples) if multiples else None,
        avoided_rows=tuple(size for name in names for size in _AVOIDED_ROWS.get(name, ())),
    )


def require_stack(name: str) -> None:
    """Refuses an unknown stack.

    Raises:
        OptionError: There is no such stack.
    """
    if name not in STACKS:
        raise OptionError(f"there is no serving stack {name!r}", hint=f"choose one of {', '.join(STACKS)}")
