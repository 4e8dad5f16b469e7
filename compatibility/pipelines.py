"""Pipelines that models were published with, for files that have tokens and merges alone (GGUF)."""

from typing import Any

from tokengraft.tokenizer.families import GPT2, LLAMA3, QWEN2

Step = dict[str, Any]


def byte_level(*, regex: bool) -> Step:
    return {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": regex}


def split(pattern: str) -> Step:
    return {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}


def sequence(*steps: Step) -> Step:
    return {"type": "Sequence", "pretokenizers": [*steps]}


def digits(*, individual: bool) -> Step:
    return {"type": "Digits", "individual_digits": individual}


NFC = {"type": "NFC"}
DIGITS_GPT2 = sequence(digits(individual=True), byte_level(regex=True))
PUNCTUATION = {"type": "Punctuation", "behavior": "Contiguous"}
_LETTERS = (
    "A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-ՖႠ-ჅᎠ-Ᏽᏸ-ᏽᲐ-ᲺᲽ-Ჿᴀ-ᴫᵫ-ᵷᵹ-ᶚḀ-ἕἘ-Ἕἠ-ὅὈ-Ὅὐ-ὗὙὛὝὟ-ώᾀ-ᾴᾶ-ᾼιῂ-ῄῆ-ῌῐ-ΐῖ-Ίῠ-Ῥῲ-ῴῶ-ῼ"
    "ℂℇℊ-ℓℕℙ-ℝℤΩℨK-ℭℯ-ℴℹℼ-ℿⅅ-ⅉⅎↃↄⰀ-ⱻⱾ-ⳤⳫ-ⳮⳲⳳꙀ-ꙭꚀ-ꚛꜢ-ꝯꝱ-ꞇꞋ-ꞎꭰ-ꮿﬀ-ﬆﬓ-ﬗＡ-Ｚａ-ｚ𐐀-𐑏𐒰-𐓓𐓘-𐓻𐲀-𐲲𐳀-𐳲𑢠-𑣟𞤀-𞥃"
)
_HAN = "[一-龥ࠀ-一가-퟿]+"

PRE_TOKENIZERS: dict[str, tuple[Step | None, Step]] = {
    "aquila": (None, byte_level(regex=True)),
    "command-r": (NFC, DIGITS_GPT2),
    "deepseek-coder": (
        None,
        sequence(
            *map(split, ("[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", _HAN)),
            digits(individual=True),
            byte_level(regex=False),
        ),
    ),
    "deepseek-llm": (
        None,
        sequence(
            *map(split, ("[\r\n]", rf"\s?[{_LETTERS}]+", r"\s?[!-/:-~！-／：-～‘-‟　-。]+", r"\s+$", _HAN)),
            digits(individual=True),
            byte_level(regex=False),
        ),
    ),
    "falcon": (
        None,
        sequence(PUNCTUATION, byte_level(regex=True), digits(individual=False), split("[0-9][0-9][0-9]")),
    ),
    "gpt-neox": (NFC, byte_level(regex=True)),
    "llama-bpe": (None, sequence(split(LLAMA3), byte_level(regex=False))),
    "mpt": (NFC, byte_level(regex=True)),
    "qwen2": (NFC, sequence(split(QWEN2), byte_level(regex=False))),
    "refact": (None, DIGITS_GPT2),
    "smollm2": (None, DIGITS_GPT2),
    "starcoder": (None, DIGITS_GPT2),
}
"""Normalizer and pre-tokenizer of byte-level models, as their `tokenizer.json` has them."""

__all__ = ["GPT2", "PRE_TOKENIZERS", "byte_level"]
