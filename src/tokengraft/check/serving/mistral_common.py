"""mistral-common: reads `tekken.json`, where the id of a token is its rank plus the number of special tokens.

Checked with mistral-common 1.13.
"""

import importlib.util
import json
from collections.abc import Iterator

from tokengraft.check.finding import EVIDENCE, Finding, Outcome
from tokengraft.check.serving.model import not_checked
from tokengraft.check.serving.model_folder import ModelFolder
from tokengraft.check.serving.tiktoken import compared, conversion_fix
from tokengraft.check.transformers_loader import summary
from tokengraft.check.verify import sample_texts
from tokengraft.output.partial import temporary_folder
from tokengraft.tokenizer.tokenizer import Tokenizer

TEKKEN = "tekken.json"
CONVERT = "write one: `tokengraft convert FOLDER --to tekken`"


def findings(folder: ModelFolder) -> Iterator[Finding]:
    """What mistral-common makes of `tekken.json`, compared with the tokenizer."""
    raw = folder.tokenizer.files.get(TEKKEN)
    if raw is None:
        yield _without(folder)
        return
    try:
        size, specials = _sizes(raw)
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError) as error:
        yield Finding("rank file", "fail", f"`{TEKKEN}` cannot be read: {summary(error)}", (), CONVERT)
        return
    yield Finding("rank file", "pass", f"`{TEKKEN}` has {size:,} ids, {specials:,} of them for special tokens")
    yield special_tokens(folder.tokenizer, specials)
    yield rows(folder, size)
    yield same_ids(folder.tokenizer, raw)


def _sizes(raw: bytes) -> tuple[int, int]:
    """The number of ids, and of those that are for special tokens."""
    config = json.loads(raw)["config"]
    return int(config["default_vocab_size"]), int(config["default_num_special_tokens"])


def _without(folder: ModelFolder) -> Finding:
    """What to say of a folder without a `tekken.json`: older models have a SentencePiece model instead."""
    versions = folder.has("tokenizer.model.v*")
    if versions:
        detail = f"`{versions[0]}` is read; see --for sentencepiece"
        return Finding("rank file", "note", detail, (), "")
    return Finding("rank file", "fail", f"there is no `{TEKKEN}`", (), conversion_fix(folder.tokenizer, "tekken"))


def special_tokens(tokenizer: Tokenizer, specials: int) -> Finding:
    """Whether special tokens have the lowest ids."""
    wrong = [f"{token.content!r} ({token.id:,})" for token in tokenizer.added if token.id >= specials]
    if not wrong:
        return Finding("special tokens", "pass", f"all ids are below {specials:,}")
    detail = f"{len(wrong):,} have ids of {specials:,} or more, which mistral-common gives to ranks"
    fix = "keep the special tokens of the base on their ids"
    return Finding("special tokens", "fail", detail, tuple(wrong[:EVIDENCE]), fix)


def rows(folder: ModelFolder, size: int) -> Finding:
    """Whether the file has as many ids as the model has rows."""
    if folder.rows is None:
        return not_checked("embedding rows", "this is a tokenizer without a model")
    if size == folder.rows:
        return Finding("embedding rows", "pass", f"{size:,}, as `default_vocab_size` says")
    detail = f"`default_vocab_size` is {size:,}, and the model has {folder.rows:,} rows"
    outcome: Outcome = "fail" if size > folder.rows else "note"
    return Finding("embedding rows", outcome, detail, (), CONVERT if size > folder.rows else "")


def same_ids(tokenizer: Tokenizer, raw: bytes) -> Finding:
    """Whether mistral-common gives the ids of tokenizer.json for sample texts."""
    if importlib.util.find_spec("mistral_common") is None:
        return not_checked("encoding", "mistral-common is not installed: `pip install mistral-common`")
    from mistral_common.tokens.tokenizers.tekken import Tekkenizer

    texts = sample_texts(tokenizer)
    with temporary_folder() as parent:
        path = parent / TEKKEN
        path.write_bytes(raw)
        try:
            loaded = Tekkenizer.from_file(path)
            ids = [loaded.encode(text, bos=False, eos=False) for text in texts]
        except Exception as error:  # its own errors are assertions, ValueError, KeyError and those of tiktoken
            return Finding("encoding", "fail", f"mistral-common refuses the file: {summary(error)}", (), CONVERT)
    return compared(tokenizer, texts, ids, CONVERT)
