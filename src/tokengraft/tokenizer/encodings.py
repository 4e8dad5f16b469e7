"""What tiktoken files do not have: split patterns and special tokens, given or of known vocabularies."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tokengraft.errors import InvalidTokenizerError

if TYPE_CHECKING:
    from tokengraft.tokenizer.rank_file import RankFile

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

SpecialTokens = Mapping[str, int] | Sequence[str]
"""Special tokens with their ids; or, where a loader gives them the ids after the ranks, in their order."""


@dataclass(frozen=True)
class Encoding:
    """What a tiktoken file does not have."""

    pattern: str
    special_tokens: SpecialTokens

    def special_ids(self, n_ranks: int) -> dict[str, int]:
        """The ids of the special tokens beside so many ranks."""
        if isinstance(self.special_tokens, Mapping):
            return dict(self.special_tokens)
        return {token: n_ranks + place for place, token in enumerate(self.special_tokens)}

    def as_dict(self) -> dict[str, Any]:
        """The content of the file `ENCODING`."""
        tokens = self.special_tokens
        return {"pat_str": self.pattern, "special_tokens": dict(tokens) if isinstance(tokens, Mapping) else [*tokens]}

    @classmethod
    def of(cls, pattern: Any, special_tokens: Any, *, name: str) -> "Encoding":
        """The encoding with a pattern and special tokens that a user or a file gives."""
        if not isinstance(pattern, str) or not pattern:
            raise InvalidTokenizerError(
                f"`{name}` has the pattern {pattern!r}; expected a regular expression",
                hint=f"pass one of the known names, {', '.join(PATTERNS)}, or a regular expression as tiktoken has it",
            )
        is_list, is_mapping = isinstance(special_tokens, list | tuple), isinstance(special_tokens, Mapping)
        ids = [*special_tokens.values()] if is_mapping else []
        proper = (
            (is_list or is_mapping)
            and all(isinstance(text, str) and text for text in special_tokens)
            and all(type(token_id) is int and 0 <= token_id < 2**32 for token_id in ids)
            and len(set(special_tokens)) == len(special_tokens)
            and len(set(ids)) == len(ids)
        )
        if not proper:
            raise InvalidTokenizerError(
                f"the special tokens in `{name}` are {special_tokens!r:.200}; expected texts with their ids, each once",
                hint='write {"<|start|>": 128000, ...}, or a list of texts, whose ids are those after the ranks',
            )
        return cls(PATTERNS.get(pattern, pattern), tuple(special_tokens) if is_list else dict(special_tokens))


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
FAMILIES = {
    "82e9d31979e92ab929cd544440f129d9ecd797b69e327f80f17e1c50d5551b55": "llama3",
    "d0bdbaf59b0762c8c807617e2d8ea51420eb1b1de266df2495be755c8e0ed6ed": "llama4",
    "306cd27f03c1a714eca7108e03d66b7dc042abe8c258b44c199a7ed9838dd930": "r50k_base",
    "94b5ca7dff4d00767bc256fdd1b27e5b17361d7b8a5f968547f9f23eb70d2069": "p50k_base",
    "223921b76ee99bde995b7ff738513eef100fb51d18c93597a113bcffe865b2a7": "cl100k_base",
    "446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d": "o200k_base",
}
"""Known vocabularies, by the hash of the lines of the file in the order of the ranks."""
_FILL_IN_THE_MIDDLE = {"<|fim_prefix|>": 100258, "<|fim_middle|>": 100259, "<|fim_suffix|>": 100260}
ENCODINGS = {
    "llama3": Encoding(LLAMA3, _llama3()),
    "llama4": Encoding(O200K, _llama4()),
    "r50k_base": Encoding(GPT2, {_END: 50256}),
    "p50k_base": Encoding(GPT2, {_END: 50256}),
    "cl100k_base": Encoding(CL100K, {_END: 100257, **_FILL_IN_THE_MIDDLE, "<|endofprompt|>": 100276}),
    "o200k_base": Encoding(O200K, {_END: 199999, "<|endofprompt|>": 200018}),
}
PATTERNS = {name: encoding.pattern for name, encoding in ENCODINGS.items()}
PATTERNS |= {"gpt2": GPT2, "qwen2": QWEN2, "tekken": TEKKEN}
"""Known patterns by name. Each matches all text."""


def family_encoding(sha256: str) -> Encoding | None:
    """The encoding of a known vocabulary, by the hash of its ranks; None if it is not known."""
    return ENCODINGS.get(FAMILIES.get(sha256, ""))


def known_encoding(files: Mapping[str, bytes], ranks: "RankFile") -> Encoding | None:
    """The encoding of a tiktoken file: that of the file `ENCODING` beside it, or of a known vocabulary."""
    if ENCODING not in files:
        return family_encoding(ranks.sha256)
    problem = "is not a JSON object"
    try:
        content = json.loads(files[ENCODING])
    except (ValueError, RecursionError) as error:
        content, problem = None, f"is not JSON: {error}"
    if not isinstance(content, dict):
        raise InvalidTokenizerError(f"`{ENCODING}` {problem}", hint="write it again, or remove it")
    return Encoding.of(content.get("pat_str"), content.get("special_tokens", {}), name=ENCODING)
