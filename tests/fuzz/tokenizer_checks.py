"""What must hold for any tokenizer file: a result or a `TokengraftError`, and a result that upstream libraries share.

Differences raise `Difference`; anything that tokengraft raises is left to the caller.
"""

import json
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from copy import copy
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import tokengraft as tg
from tokengraft.checkpoint.ids import config_tokens
from tokengraft.errors import TokengraftError
from tokengraft.formats.huggingface import read_tokenizer_json
from tokengraft.formats.sources import folder_files
from tokengraft.tokenizer.tokenizer import whole_document

TEXTS = (
    "the cat sat",
    " kass õues 12345 ",
    "a\n\n  b\t猫 e\u0301 ﬁ İ",
    "<|end|>x<s> y</s>",
    "don't WE'LL x=1",
    "\0\u2028 \ud7ff",
)
COUNTED = ("the cat sat on the mat", "the other cat", "kass istus matil, õhtu õdus", "x1 22 333\n\n<s>")
SAVED_SHARE, WHOLE_SHARE = 0.2, 0.02
"""The shares of accepted tokenizers that are also saved and loaded, and that are counted with, extended and pruned."""


class Difference(Exception):  # noqa: N818
    """A result that contradicts another one."""


def check_folder(folder: Path, random: Random) -> None:
    """Loads a folder; if that works, all other checks of tokenizers."""
    tokenizer = tg.load(folder)
    check_tokenizer(tokenizer, random)


def check_json(folder: Path, random: Random) -> None:
    """As `check_folder` for a single `tokenizer.json`, compared with the `tokenizers` library."""
    raw = (folder / "tokenizer.json").read_bytes()
    tokenizer = tg.load(folder / "tokenizer.json")
    upstream = upstream_of(raw)
    if upstream is None:
        raise Difference("tokengraft reads a tokenizer.json that the library refuses")
    require_same(tokenizer, upstream, texts_of(tokenizer, random))
    check_tokenizer(tokenizer, random)


def check_tokenizer(tokenizer: tg.Tokenizer, random: Random) -> None:
    """Saving loses nothing; a part of all cases goes through the other steps."""
    if random.random() < SAVED_SHARE:
        require_saved(tokenizer)
    if random.random() < WHOLE_SHARE:
        for step in (_inspected, _verified, _extended, _pruned, _compacted):
            with suppress(TokengraftError):
                step(tokenizer, random)


def require_saved(tokenizer: tg.Tokenizer) -> None:
    """The written files are read as the same tokenizer, and written again as the same bytes.

    Of copies: a tokenizer that was read, and is unchanged, is written as the bytes that were read.
    """
    files = folder_files(copy(tokenizer))
    with tempfile.TemporaryDirectory(dir=_scratch()) as name:
        for file, raw in files.items():
            path = Path(name, file)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(raw)
        try:
            again = tg.load(name)
        except TokengraftError as error:
            raise Difference(f"what was written is refused: {error}") from error
    if again.ids != tokenizer.ids or again.merge_strings() != tokenizer.merge_strings():
        raise Difference("what was written has other tokens or merges")
    if again.added != tokenizer.added or again.content_hash != tokenizer.content_hash:
        raise Difference("what was written has other added tokens or another pipeline")
    if folder_files(copy(again)) != files:
        raise Difference("what was written is written differently again")


@cache
def _scratch() -> str | None:
    return "/dev/shm" if Path("/dev/shm").is_dir() else None


def upstream_of(raw: bytes) -> Any:
    """The tokenizer as the `tokenizers` library loads it, without truncation and padding; None if it does not."""
    import tokenizers

    try:
        upstream = tokenizers.Tokenizer.from_str(raw.decode())
        upstream.no_truncation()
        upstream.no_padding()
    except KeyboardInterrupt:
        raise
    except BaseException:  # a panic of the library is no `Exception`
        return None
    return upstream


def texts_of(tokenizer: tg.Tokenizer, random: Random) -> Iterator[str]:
    """Texts of joined tokens, which reach conflicts of merges, beside some fixed ones."""
    yield from TEXTS
    tokens = [token.bytes for token in tokenizer.tokens]
    for _ in range(3):
        yield b"".join(random.choices(tokens, k=8)).decode(errors="replace") if tokens else ""


def require_same(tokenizer: tg.Tokenizer, upstream: Any, texts: Iterator[str]) -> None:
    """Both give the same ids, or refuse."""
    for text in texts:
        expected = _upstream_ids(upstream, text)
        if expected is None:
            continue
        ids = tokenizer.encode(text)
        if ids != expected:
            raise Difference(f"{text!r:.200} is encoded as {ids[:40]}, upstream as {expected[:40]}")


def _upstream_ids(upstream: Any, text: str) -> list[int] | None:
    try:
        ids: list[int] = upstream.encode(text, add_special_tokens=False).ids
    except KeyboardInterrupt:
        raise
    except BaseException:  # as above
        return None
    return ids


def _inspected(tokenizer: tg.Tokenizer, _: Random) -> None:
    repr(tg.inspect(tokenizer))
    repr(tokenizer)


def _verified(tokenizer: tg.Tokenizer, _: Random) -> None:
    repr(tg.check(tokenizer))
    config_tokens(tokenizer, "/nonexistent")


def _counted(tokenizer: tg.Tokenizer) -> tg.PretokenCounts:
    return tg.count(tokenizer, iter(COUNTED), count_options=tg.CountOptions(workers=1))


def _extended(tokenizer: tg.Tokenizer, random: Random) -> None:
    counts = _counted(tokenizer)
    extension = tg.extend(tokenizer, counts, 6)
    extended = extension.apply(tokenizer)
    _require_edit(extended, random)
    spelled = {token for token in extension.tokens if extended.encode_pretoken(token) != [extended.ids[token]]}
    if spelled:
        raise Difference(f"the new token {spelled.pop()!r} is not reachable")
    tg.plan(tokenizer, extended)
    spells = tokenizer.spells_everything  # otherwise a run of unknown characters may have been one token
    if spells and sum(counts.tokens(extended).values()) > sum(counts.tokens(tokenizer).values()):
        raise Difference("the training text has more tokens after extending")


def _pruned(tokenizer: tg.Tokenizer, random: Random) -> None:
    order = tg.prune_order(tokenizer, _counted(tokenizer))
    pruned = order[: len(order) // 2].apply(tokenizer)
    _require_edit(pruned.compact(), random)
    _require_edit(pruned, random)


def _compacted(tokenizer: tg.Tokenizer, random: Random) -> None:
    _require_edit(tokenizer.compact(), random)


def _require_edit(tokenizer: tg.Tokenizer, random: Random) -> None:
    """A changed tokenizer can be saved, and the library encodes as it does."""
    require_saved(tokenizer)
    whole = whole_document(tokenizer).encode()
    upstream = upstream_of(whole)
    if upstream is None:
        raise Difference("the library refuses the changed tokenizer.json")
    require_same(tokenizer, upstream, texts_of(tokenizer, random))


def check_pieces(folder: Path, random: Random) -> None:
    """A SentencePiece model, compared with SentencePiece for ordinary text."""
    tokenizer = tg.load(folder)
    check_tokenizer(tokenizer, random)


def check_ranks(folder: Path, random: Random) -> None:
    """A tiktoken or tekken file, compared with tiktoken's encoder."""
    tokenizer = tg.load(folder)
    check_tokenizer(tokenizer, random)
    encode = _tiktoken(tokenizer)
    for text in texts_of(tokenizer, random) if encode else ():
        if any(token.content in text for token in tokenizer.added):
            continue
        expected = encode(text) if encode else None
        ids = tokenizer.encode(text)
        if expected is not None and ids != expected:
            raise Difference(f"{text!r:.200} is encoded as {ids[:40]}, by tiktoken as {expected[:40]}")


def _tiktoken(tokenizer: tg.Tokenizer) -> Callable[[str], list[int] | None] | None:
    import tiktoken

    document = json.loads(tokenizer.rest)
    pattern = document["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"]
    special = {token.content for token in tokenizer.added}
    ranks = {token.bytes: token.id for token in tokenizer.tokens if token.string not in special}
    try:
        encoding = tiktoken.Encoding("x", pat_str=pattern, mergeable_ranks=ranks, special_tokens={})
    except KeyboardInterrupt:
        raise
    except BaseException:  # a panic of the library is no `Exception`
        return None

    def encode(text: str) -> list[int] | None:
        try:
            ids: list[int] = encoding.encode(text, disallowed_special=())
        except KeyboardInterrupt:
            raise
        except BaseException:  # a byte without a rank is a panic
            return None
        return ids

    return encode


@cache
def cached_tokenizer(raw: bytes) -> tg.Tokenizer:
    """A tokenizer that a case does not change, loaded once for each process."""
    return read_tokenizer_json(raw, name="tokenizer.json", files={})
