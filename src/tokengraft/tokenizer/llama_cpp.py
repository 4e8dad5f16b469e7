"""The check of llama.cpp's converter: it encodes one text, hashes the ids, and looks the hash up.

The hash decides which pre-tokenizer llama.cpp will use. A folder with an unknown hash is not converted. The text and
the hashes are facts of llama.cpp; `lab/llama_cpp_hashes.py` writes them to `llama_cpp.json`, with the version.
Folders with a SentencePiece `tokenizer.model` of Llama and Gemma types are converted without this check.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from importlib import resources
from typing import Any

from tokengraft.errors import OptionError, option
from tokengraft.output.json_file import read_settings
from tokengraft.tokenizer.kind import processor_steps
from tokengraft.tokenizer.tokenizer import Tokenizer

ADDING = ("LlamaTokenizer", "CodeLlamaTokenizer", "CohereTokenizer", "GemmaTokenizer")
"""Classes of transformers 4 that put BOS and EOS around text by `add_bos_token` and `add_eos_token`, whatever the
post-processor of the file does."""


@dataclass(frozen=True)
class ConverterTable:
    """What the converter knows."""

    source: str
    """The version of llama.cpp, and where its source is from."""
    file: str
    """The file of llama.cpp that has the check."""
    check_text: str
    skipping: Sequence[str]
    """The types of pre-tokenizer for which llama.cpp encodes a pretoken that is a token as that token, without merges
    (`ignore_merges`)."""
    types: Mapping[str, str]
    """The type of pre-tokenizer for each hash."""


@dataclass(frozen=True)
class ConverterCheck:
    """Whether llama.cpp's converter recognises a tokenizer."""

    hash: str
    type: str | None
    """The type of pre-tokenizer for the hash; None if the converter does not know the hash."""
    base_type: str | None = None
    """The same for the tokenizer that this one was made from, if that one was given."""

    @property
    def known(self) -> bool:
        """Whether the stock converter recognises the tokenizer, as what its base is."""
        return self.type is not None and self.base_type in (None, self.type)

    @property
    def line(self) -> str | None:
        """The lines to add to `get_vocab_base_pre` of the converter; None if none are needed, or the type is unknown.

        >>> print(ConverterCheck("4f", None, "llama-bpe").line)
                if chkhsh == "4f":
                    res = "llama-bpe"
        """
        if self.known or self.base_type is None:
            return None
        return f'        if chkhsh == "{self.hash}":\n            res = "{self.base_type}"'


@cache
def converter_table() -> ConverterTable:
    """The text and the hashes of the converter."""
    text = resources.files("tokengraft.tokenizer").joinpath("llama_cpp.json").read_text(encoding="utf-8")
    return ConverterTable(**json.loads(text))


def converter_check(tokenizer: Tokenizer, base: Tokenizer | None = None) -> ConverterCheck:
    """Whether llama.cpp's converter recognises a tokenizer, as what the ``base`` is that it was made from."""
    types = converter_table().types
    digest = ids_hash(check_ids(tokenizer))
    base_type = types.get(ids_hash(check_ids(base))) if base is not None else None
    return ConverterCheck(digest, types.get(digest), base_type)


def require_known(tokenizer: Tokenizer) -> None:
    """Refuses a tokenizer whose hash the converter does not know: there is nothing to keep."""
    if not converter_check(tokenizer).known:
        raise OptionError(
            f"the hash of this tokenizer cannot be kept: the converter of {converter_table().source} does not know it",
            hint=f"drop {option('keep_llama_cpp_hash')}; `tokengraft check --for llama.cpp` says what the converter "
            "needs",
        )


def skipping_warning(tokenizer: Tokenizer, pre_type: str | None) -> str | None:
    """A warning if llama.cpp skips merges for a type of pre-tokenizer and the tokenizer does not, or the reverse.

    The files of Llama-3, for example, are of the type `llama-bpe` with BOS before text, which skips merges. Without BOS
    the converter takes them for `smaug-bpe`, which does not.
    """
    table = converter_table()
    skips = pre_type in table.skipping
    if skips == tokenizer.ignore_merges or not (skips or pre_type in table.types.values()):
        return None
    who, other = ("llama.cpp", "the tokenizer") if skips else ("the tokenizer", "llama.cpp")
    return (
        f"{who} skips merges for pretokens that are tokens (`ignore_merges`) and {other} does not, for the "
        f"pre-tokenizer type {pre_type!r}: llama.cpp splits some text in another way"
    )


def check_tokens(tokenizer: Tokenizer) -> tuple[str, ...]:
    """The tokens of the check text, for `Protection.tokens`: if they are pruned or moved, the hash changes.

    Special tokens that the post-processor puts around text are included.
    """
    return tuple(sorted(tokenizer.strings[token_id] for token_id in {*check_ids(tokenizer)}))


def check_ids(tokenizer: Tokenizer) -> list[int]:
    """The ids that the converter hashes: the check text as transformers encodes it, with special tokens around it.

    As transformers 4 does it, which llama.cpp requires. Version 5 differs for the classes in `ADDING`, where it follows
    the post-processor of the file, and for classes that then ignore parts of `tokenizer.json`.
    """
    before, after = list[int](), list[int]()
    settings = read_settings(tokenizer.files, "tokenizer_config.json")
    if str(settings.get("tokenizer_class")).removesuffix("Fast") in ADDING:
        for name, ids, by_default in (("bos", before, True), ("eos", after, False)):
            token = settings.get(f"{name}_token")
            content = token.get("content") if isinstance(token, dict) else token
            if settings.get(f"add_{name}_token", by_default) and isinstance(content, str) and content in tokenizer.ids:
                ids.append(tokenizer.ids[content])
    else:
        for step in processor_steps(tokenizer.document.get("post_processor")):
            first, last = _around(step)
            before, after = first + before, after + last
    return [*before, *tokenizer.encode(converter_table().check_text), *after]


def ids_hash(ids: Sequence[int]) -> str:
    """The converter's hash of some ids.

    >>> ids_hash([1, 2])[:8]
    '3a316d6d'
    """
    return sha256(str([*ids]).encode()).hexdigest()


def _around(step: Mapping[str, Any]) -> tuple[list[int], list[int]]:
    """The ids that a step of a post-processor puts before and after a text."""
    if step.get("type") in ("RobertaProcessing", "BertProcessing"):
        return [step["cls"][1]], [step["sep"][1]]
    before, after = list[int](), list[int]()
    ids = before
    for part in step.get("single") or () if step.get("type") == "TemplateProcessing" else ():
        special = part.get("SpecialToken")
        if special is None:  # the text
            ids = after
        else:
            ids += (step.get("special_tokens") or {}).get(special["id"], {}).get("ids", ())
    return before, after
