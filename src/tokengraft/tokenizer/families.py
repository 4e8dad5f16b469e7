"""Known tiktoken vocabularies, recognised by their content: the split pattern and the special tokens of each.

A tiktoken file lists tokens and ranks only. The rest is in the code of the model that uses it. The patterns here are in
the syntax that both regex engines read alike, the one of tiktoken and the one of `tokenizers`.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tokengraft.errors import InvalidTokenizerError

ENCODING = "tiktoken_encoding.json"
"""The file beside a tiktoken file that has what the latter lacks. tokengraft writes it with a changed vocabulary."""

_WORDS = r"[^\r\n\p{L}\p{N}]?\p{L}+"
_CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_SPACES = r"\s*[\r\n]+|\s+(?!\S)|\s+"

GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_CL100K = rf"{_CONTRACTIONS}|{_WORDS}|\p{{N}}{{1,3}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*"
LLAMA3 = f"{_CL100K}|{_SPACES}"
CL100K = rf"{_CL100K}|\s+(?![\s\S])|{_SPACES}"
"""As Llama-3's, but white space at the end of the text is one pretoken, whatever line ends it has."""
O200K = "|".join(
    [
        rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+{_CONTRACTIONS}?",
        rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*{_CONTRACTIONS}?",
        r"\p{N}{1,3}",
        r" ?[^\s\p{L}\p{N}]+[\r\n/]*",
        _SPACES,
    ]
)

QWEN2 = LLAMA3.replace("{1,3}", "")
TEKKEN = O200K.replace("{1,3}", "").replace(f"{_CONTRACTIONS}?", "")

SpecialTokens = Mapping[str, int] | tuple[str, ...]
"""Special tokens with their ids; or, where a loader gives them the ids after the ranks, in their order."""


@dataclass(frozen=True)
class Encoding:
    """What a tiktoken file does not have."""

    pattern: str
    special_tokens: SpecialTokens

    @property
    def follows_ranks(self) -> bool:
        """Whether special tokens have the ids after the ranks, in their order, as Llama-3's loader gives them."""
        return isinstance(self.special_tokens, tuple)

    def special_ids(self, n_ranks: int) -> dict[str, int]:
        """The ids of the special tokens beside so many ranks."""
        if isinstance(self.special_tokens, tuple):
            return {token: n_ranks + place for place, token in enumerate(self.special_tokens)}
        return dict(self.special_tokens)

    def as_dict(self) -> dict[str, Any]:
        """The content of the file `ENCODING`."""
        tokens = self.special_tokens
        return {"pat_str": self.pattern, "special_tokens": [*tokens] if isinstance(tokens, tuple) else dict(tokens)}

    @classmethod
    def of(cls, pattern: Any, special_tokens: Any, *, name: str) -> "Encoding":
        """The encoding with a pattern and special tokens that a user or a file gives.

        Raises:
            InvalidTokenizerError: They are not a pattern and special tokens.
        """
        if not isinstance(pattern, str) or not pattern:
            raise InvalidTokenizerError(
                f"`{name}` has the pattern {pattern!r}; expected a regular expression",
                hint=f"pass one of the known names, {', '.join(PATTERNS)}, or a regular expression as tiktoken has it",
            )
        return cls(PATTERNS.get(pattern, pattern), _special_tokens(special_tokens, name))


def _special_tokens(given: Any, name: str) -> SpecialTokens:
    is_list = isinstance(given, list | tuple)
    texts, ids = (
        ([*given], []) if is_list else ([*given], [*given.values()]) if isinstance(given, Mapping) else ([0], [])
    )
    proper_ids = all(type(token_id) is int and 0 <= token_id < 2**32 for token_id in ids)
    proper = all(isinstance(text, str) and text for text in texts) and proper_ids
    if not proper or len(set(texts)) < len(texts) or len(set(ids)) < len(ids):
        raise InvalidTokenizerError(
            f"the special tokens in `{name}` are {given!r:.200}; expected texts with their ids, each once",
            hint='write {"<|start|>": 128000, ...}, or a list of texts, whose ids are those after the ranks',
        )
    return tuple(texts) if is_list else dict(given)


def family_encoding(sha256: str) -> Encoding | None:
    """The encoding of a known vocabulary, by the hash of its ranks; None if it is not known."""
    family = next((family for family in FAMILIES if family.sha256 == sha256), None)
    return family.encoding if family else None


@dataclass(frozen=True)
class Family:
    """A known vocabulary."""

    name: str
    sha256: str
    """Of the lines of the file, by rank."""
    encoding: Encoding


def _reserved(name: str, first: int, end: int) -> list[str]:
    return [f"<|{name}reserved_special_token_{number}|>" for number in range(first, end)]


def _llama3() -> tuple[str, ...]:
    """The special tokens of Llama-3.1 and later."""
    named = ["finetune_right_pad_id", "step_id", "start_header_id", "end_header_id", "eom_id", "eot_id", "python_tag"]
    first = ["<|begin_of_text|>", "<|end_of_text|>", *_reserved("", 0, 2)]
    return (*first, *(f"<|{name}|>" for name in [*named, "image"]), *_reserved("", 2, 246))


def _llama4() -> tuple[str, ...]:
    text, vision, reasoning = "text_post_train_", "vision_", "reasoning_"
    return (
        *(f"<|{name}|>" for name in ("begin_of_text", "end_of_text", "fim_prefix", "fim_middle", "fim_suffix")),
        *(f"<|{name}|>" for name in ("header_start", "header_end", "eom", "eot", "step")),
        *_reserved(text, 0, 6),
        *(f"<|{name}|>" for name in ("python_start", "python_end", "finetune_right_pad")),
        *_reserved(text, 8, 69),
        *("<|image_start|>", "<|image_end|>", *_reserved(vision, 0, 2), "<|tile_x_separator|>", "<|tile_y_separator|>"),
        *(*_reserved(vision, 2, 6), "<|image|>", *_reserved(vision, 6, 7), "<|patch|>", *_reserved(vision, 7, 1048)),
        *(*_reserved(reasoning, 0, 8), "<|reasoning_thinking_start|>", "<|reasoning_thinking_end|>"),
        *_reserved("", 0, 904),
    )


_END = "<|endoftext|>"
FAMILIES = (
    Family(
        "llama3",
        "82e9d31979e92ab929cd544440f129d9ecd797b69e327f80f17e1c50d5551b55",
        Encoding(LLAMA3, _llama3()),
    ),
    Family(
        "llama4",
        "d0bdbaf59b0762c8c807617e2d8ea51420eb1b1de266df2495be755c8e0ed6ed",
        Encoding(O200K, _llama4()),
    ),
    Family(
        "r50k_base",
        "306cd27f03c1a714eca7108e03d66b7dc042abe8c258b44c199a7ed9838dd930",
        Encoding(GPT2, {_END: 50256}),
    ),
    Family(
        "p50k_base",
        "94b5ca7dff4d00767bc256fdd1b27e5b17361d7b8a5f968547f9f23eb70d2069",
        Encoding(GPT2, {_END: 50256}),
    ),
    Family(
        "cl100k_base",
        "223921b76ee99bde995b7ff738513eef100fb51d18c93597a113bcffe865b2a7",
        Encoding(
            CL100K,
            {
                _END: 100257,
                "<|fim_prefix|>": 100258,
                "<|fim_middle|>": 100259,
                "<|fim_suffix|>": 100260,
                "<|endofprompt|>": 100276,
            },
        ),
    ),
    Family(
        "o200k_base",
        "446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d",
        Encoding(O200K, {_END: 199999, "<|endofprompt|>": 200018}),
    ),
)
PATTERNS = {family.name: family.encoding.pattern for family in FAMILIES} | {
    "gpt2": GPT2,
    "qwen2": QWEN2,
    "tekken": TEKKEN,
}
"""Known patterns by name. Each matches all text."""


def read_encoding(raw: bytes) -> Encoding:
    """The content of a file `ENCODING`.

    Raises:
        InvalidTokenizerError: It is not one.
    """
    try:
        content = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise InvalidTokenizerError(
            f"`{ENCODING}` is not JSON: {error}", hint="write it again, or remove it"
        ) from error
    if not isinstance(content, dict):
        raise InvalidTokenizerError(f"`{ENCODING}` is not a JSON object", hint="write it again, or remove it")
    return Encoding.of(content.get("pat_str"), content.get("special_tokens", {}), name=ENCODING)
