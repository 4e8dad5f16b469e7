"""`packed_tokenizers`: two vocabularies as compressed columns, from which the page runs both tokenizers.

A reachable token is made by one merge, whatever text it is in (see `docs/architecture.md`). So a merge is the place in
its token where the left part ends, and the order of the merges. Of the new vocabulary, tokens that the base has too are
references to it.
"""

import base64
import json
import zlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any

from tokengraft import _core
from tokengraft.tokenizer.kind import byte_token, spell
from tokengraft.tokenizer.tokenizer import Token, Tokenizer
from tokengraft.vocab_plan import VocabPlan

ADDED, OUTSIDE, UNREACHABLE = 1, 2, 4
"""Flags of a token: an added token; a token that BPE never makes of text, because the model's vocabulary lacks it or
its text is not spelled in the byte-level alphabet; a token that fails the Self-Tokenization Test."""
COMMON, PART = "Common", "part of a character"
"""The script of digits, punctuation and white space; and what stands for the script of a token without a complete
character of some script, if it has parts of one."""
_NOT_WRITING = frozenset((COMMON, "Inherited", "Unknown"))


def packed_tokenizers(base: Tokenizer, new: Tokenizer, plan: VocabPlan) -> dict[str, bytes]:
    """Columns of both vocabularies by name, not compressed."""
    places = {token.id: place for place, token in enumerate(base.tokens)}
    columns = {f"base.{name}": column for name, column in _columns(base, base.tokens).items()}
    sources = [plan.sources[token.id] for token in new.tokens]
    references = [places[source] if isinstance(source, int) else None for source in sources]
    same_kind = base.kind == new.kind
    own = [t for t, place in zip(new.tokens, references, strict=True) if place is None or not same_kind]
    columns |= {f"new.{name}": column for name, column in _columns(new, own).items()}
    columns["new.ids"] = _ids(new.tokens)
    columns["new.flags"] = bytes(_flags(new, new.tokens))
    columns["new.sources"] = varints(_references(references))
    if same_kind:
        columns["new.moved_splits"] = varints(_moved_splits(base, new, references))
    for side, tokenizer in (("base", base), ("new", new)):
        columns[f"{side}.merges"] = varints(_merge_order(tokenizer))
    return columns


def tokenizer_settings(tokenizer: Tokenizer) -> dict[str, Any]:
    """What the page needs beside the vocabulary. ``pipeline`` has a `reason` if the page cannot encode exactly."""
    byte_level = tokenizer.kind == "byte-level"
    return {
        "kind": tokenizer.kind,
        "tokens": len(tokenizer.tokens),
        "rows": tokenizer.n_rows,
        "ignoreMerges": tokenizer.ignore_merges,
        "byteFallback": tokenizer.byte_fallback,
        "fuseUnknown": bool(tokenizer.model.get("fuse_unk")),
        "unknown": _unknown(tokenizer),
        "added": [[t.id, t.content, t.lstrip, t.rstrip, t.normalized] for t in tokenizer.added],
        "pipeline": _model_reason(tokenizer) or json.loads(_core.Pipeline.describe(tokenizer.skeleton, byte_level)),
    }


def _model_reason(tokenizer: Tokenizer) -> dict[str, str] | None:
    """Why the page cannot run the model, whatever the pipeline."""
    if tokenizer.algorithm != "BPE":
        return {"reason": f"the model is {tokenizer.algorithm}, and the page runs BPE"}
    if tokenizer.kind == "byte-level" and tokenizer.missing_bytes and tokenizer.byte_fallback:
        return {"reason": "the vocabulary lacks bytes, and the model has byte fallback"}
    names_unknown = tokenizer.model.get("unk_token") is not None
    if names_unknown and _unknown(tokenizer) is None and not tokenizer.spells_everything:
        return {"reason": "the model names an unknown token that the vocabulary lacks"}
    # A product of a byte token or the unknown token is made of no text alone.
    stand_ins = set() if tokenizer.spells_everything else {_unknown(tokenizer)}
    if tokenizer.kind != "byte-level" and tokenizer.byte_fallback:
        stand_ins |= {tokenizer.vocab.get(byte_token(byte)) for byte in range(256)}
    stand_ins.discard(None)
    if stand_ins and any(part in stand_ins for pair in tokenizer.merges for part in pair):
        return {"reason": "merges join the tokens that stand for characters that the vocabulary lacks"}
    return None


def _unknown(tokenizer: Tokenizer) -> int | None:
    """The id of the unknown token."""
    name = tokenizer.model.get("unk_token")
    return None if name is None else tokenizer.vocab.get(name)


def _columns(tokenizer: Tokenizer, tokens: Sequence[Token]) -> dict[str, bytes]:
    keys = [_key(tokenizer, token) for token in tokens]
    scripts = token_scripts([token.bytes for token in tokens])
    names = sorted(set(scripts))
    return {
        "ids": _ids(tokens),
        "flags": bytes(_flags(tokenizer, tokens)),
        "lengths": varints(map(len, keys)),
        "text": b"".join(keys),
        "splits": varints(_splits(tokenizer, [token.id for token in tokens])),
        "scripts": bytes(names.index(script) for script in scripts),
        "script_names": "\n".join(names).encode(),
    }


def _key(tokenizer: Tokenizer, token: Token) -> bytes:
    """The bytes of a token of a byte-level vocabulary; of others, its string, in which a byte is `<0xNN>`."""
    return token.bytes if tokenizer.kind == "byte-level" else token.string.encode()


def _ids(tokens: Sequence[Token]) -> bytes:
    """The ids as differences: they ascend."""
    ids = [-1, *(token.id for token in tokens)]
    return varints(after - before for before, after in pairwise(ids))


def _flags(tokenizer: Tokenizer, tokens: Iterable[Token]) -> Iterable[int]:
    added, unreachable = {token.id for token in tokenizer.added}, {*tokenizer.structure.unreachable}
    id_of = tokenizer.core_vocabulary.id_of
    for token in tokens:
        spelled = tokenizer.kind != "byte-level" or spell(token.bytes, "byte-level") == token.string
        outside = not spelled or id_of(token.string) is None
        yield ADDED * (token.id in added) + OUTSIDE * outside + UNREACHABLE * (token.id in unreachable)


def _splits(tokenizer: Tokenizer, ids: Iterable[int]) -> Iterable[int]:
    """For each token, the length of the left part of its merge; 0 if no merge makes it."""
    keys = {token.id: token for token in tokenizer.tokens}
    merged = tokenizer.structure.splits
    for token_id in ids:
        yield len(_key(tokenizer, keys[merged[token_id][0]])) if token_id in merged else 0


def _moved_splits(base: Tokenizer, new: Tokenizer, references: Sequence[int | None]) -> Iterable[int]:
    """The tokens of both that another merge makes now: their distance in the list of tokens, and the new split."""
    after = [*_splits(new, (token.id for token in new.tokens))]
    before = [*_splits(base, (token.id for token in base.tokens))]
    last = 0
    for place, (reference, split) in enumerate(zip(references, after, strict=True)):
        if reference is not None and before[reference] != split:
            yield from (place - last, split)
            last = place


def _merge_order(tokenizer: Tokenizer) -> Iterable[int]:
    """The tokens that merges make by the rank of the merge: their places, as differences."""
    ranks = {pair: rank for rank, pair in reversed([*enumerate(tokenizer.merges)])}
    places = {token.id: place for place, token in enumerate(tokenizer.tokens)}
    merged = tokenizer.structure.splits
    last = -1
    for token_id in sorted(merged, key=lambda token_id: ranks[merged[token_id]]):
        yield signed(places[token_id] - last)
        last = places[token_id]


def _references(references: Iterable[int | None]) -> Iterable[int]:
    """0 for a new token; else 1 plus the difference from the reference that is expected, the next one."""
    expected = 0
    for reference in references:
        yield 0 if reference is None else 1 + signed(reference - expected)
        expected = expected if reference is None else reference + 1


def signed(value: int) -> int:
    """A whole number as a natural one.

    >>> [signed(value) for value in (0, -1, 1, -2)]
    [0, 1, 2, 3]
    """
    return 2 * value if value >= 0 else -2 * value - 1


def varints(values: Iterable[int]) -> bytes:
    """Natural numbers, seven bits a byte, the lowest first.

    >>> varints([1, 300]).hex()
    '01ac02'
    """
    out = bytearray()
    for value in values:
        while value >= 0x80:
            out.append(value & 0x7F | 0x80)
            value >>= 7
        out.append(value)
    return bytes(out)


def compressed(columns: Mapping[str, bytes]) -> str:
    """Columns as base64 of deflated data: the lengths and names as JSON in the first line, then the columns."""
    head = json.dumps([[name, len(column)] for name, column in columns.items()]).encode() + b"\n"
    return base64.b64encode(zlib.compress(head + b"".join(columns.values()), 9)).decode()


def token_scripts(tokens: Sequence[bytes]) -> list[str]:
    """The script of each token: that of most of its complete characters, of several the first.

    Digits, punctuation, white space and combining marks do not count. A token that has nothing else is `Common`, unless
    it has a part of a character.

    >>> token_scripts([b" cat", "猫が".encode(), b" 12", b" \\xd0", "в ".encode() + b"a1"])
    ['Latin', 'Han', 'Common', 'part of a character', 'Cyrillic']
    """
    texts = [data.decode(errors="ignore") for data in tokens]
    named = _core.scripts(texts)
    found = []
    for text, names, data in zip(texts, named, tokens, strict=True):
        written = [name for name in names if name not in _NOT_WRITING]
        if len(written) > 1:
            each = [name for (name,) in _core.scripts(list(text)) if name not in _NOT_WRITING]
            written = [Counter(each).most_common(1)[0][0]]  # of several that are equally frequent, the first
        found.append(written[0] if written else COMMON if len(text.encode()) == len(data) else PART)
    return found
