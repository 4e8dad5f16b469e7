"""Tokenizer folders for benchmarks: real ones, and Llama-3's or a SentencePiece vocabulary with other pipelines.

    python -m lab.benchmarks.folders package NAME OUT
    python -m lab.benchmarks.folders pipeline NAME VOCABULARY_FOLDER OUT

Without a folder of real tokenizers, Llama-3 is built from the PyPI package llama-models, and Mistral-v3 from
mistral-common takes the place of Llama-2 and Gemma.
"""

import json
import sys
from pathlib import Path
from typing import Any

from lab.benchmarks.measure import script

BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
CONTRACTION = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
UPPER, LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
O200K = "|".join(
    [
        rf"[^\r\n\p{{L}}\p{{N}}]?{UPPER}*{LOWER}+{CONTRACTION}?",
        rf"[^\r\n\p{{L}}\p{{N}}]?{UPPER}+{LOWER}*{CONTRACTION}?",
        r"\p{N}{1,3}",
        r" ?[^\s\p{L}\p{N}]+[\r\n/]*",
        r"\s*[\r\n]+",
        r"\s+(?!\S)",
        r"\s+",
    ]
)
QWEN = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
DEEPSEEK = (
    r"\p{N}{1,3}",
    "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+",
    r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+|"""
    r""" ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+""",
)


def _split(pattern: dict[str, str], behavior: str = "Isolated") -> dict[str, Any]:
    return {"type": "Split", "pattern": pattern, "behavior": behavior, "invert": False}


def _sequence(*steps: dict[str, Any]) -> dict[str, Any]:
    return {"type": "Sequence", "pretokenizers": [*steps]}


PIPELINES: dict[str, tuple[str, dict[str, Any]]] = {
    "DeepSeek-V3": (
        "llama3",
        {"pre_tokenizer": _sequence(*(_split({"Regex": pattern}) for pattern in DEEPSEEK), BYTE_LEVEL)},
    ),
    "o200k (GPT-4o, gpt-oss)": ("llama3", {"pre_tokenizer": _sequence(_split({"Regex": O200K}), BYTE_LEVEL)}),
    "Qwen-2.5": (
        "llama3",
        {"normalizer": {"type": "NFC"}, "pre_tokenizer": _sequence(_split({"Regex": QWEN}), BYTE_LEVEL)},
    ),
    "Command-R": (
        "llama3",
        {
            "normalizer": {"type": "NFC"},
            "pre_tokenizer": _sequence({"type": "Digits", "individual_digits": True}, BYTE_LEVEL | {"use_regex": True}),
        },
    ),
    "Gemma-2": (
        "gemma3",
        {
            "normalizer": {"type": "Replace", "pattern": {"String": " "}, "content": "▁"},
            "pre_tokenizer": _split({"String": " "}, "MergedWithPrevious"),
        },
    ),
    "Yi": (
        "llama2",
        {
            "normalizer": {
                "type": "Sequence",
                "normalizers": [
                    {"type": "Prepend", "prepend": "▁"},
                    {"type": "Replace", "pattern": {"String": " "}, "content": "▁"},
                ],
            },
            "pre_tokenizer": None,
        },
    ),
}
"""The vocabulary that a pipeline is given, and the parts of `tokenizer.json` that make the pipeline."""
_FROM_PACKAGES = {"llama3": "llama3", "gemma3": "mistral-v3", "llama2": "mistral-v3"}


class Folders:
    """Tokenizer folders, written below ``scratch`` when they are first asked for."""

    def __init__(self, real: Path | None, scratch: Path) -> None:
        self.real, self.scratch = real, scratch

    def folder(self, name: str) -> Path:
        """A real tokenizer: `llama3`, `llama2` or `gemma3`, or what takes its place."""
        if self.real and (self.real / name).is_dir():
            return self.real / name
        out = self.scratch / "tokenizers" / name
        if not out.exists():
            script("folders", "package", _FROM_PACKAGES[name], out)
        return out

    def has(self, name: str) -> bool:
        """Whether there is a real tokenizer of this name, or one that takes its place."""
        return name in _FROM_PACKAGES or bool(self.real and (self.real / name).is_dir())

    def name(self, name: str) -> str:
        """What `folder` really returns."""
        return name if self.folder(name).parent == self.real else f"{_FROM_PACKAGES[name]}, from PyPI"

    def with_pipeline(self, pipeline: str) -> Path:
        """A folder with the pipeline of another model."""
        out = self.scratch / "pipelines" / pipeline.split()[0]
        script("folders", "pipeline", pipeline, self.folder(PIPELINES[pipeline][0]), out)
        return out


def write_package(name: str, out: Path) -> None:
    """Writes a tokenizer that a PyPI package has."""
    sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))
    import builders

    builders.write(out, builders.REAL[name]())


def write_pipeline(pipeline: str, vocabulary: Path, out: Path) -> None:
    """Writes a tokenizer with another pipeline."""
    document = json.loads((vocabulary / "tokenizer.json").read_text(encoding="utf-8"))
    text = json.dumps(document | {"normalizer": None} | PIPELINES[pipeline][1], ensure_ascii=False)
    out.mkdir(parents=True)
    (out / "tokenizer.json").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    if sys.argv[1] == "package":
        write_package(sys.argv[2], Path(sys.argv[3]))
    else:
        write_pipeline(sys.argv[2], Path(sys.argv[3]), Path(sys.argv[4]))
