"""`packed_tokenizers`: two vocabularies as compressed columns, from which the page runs both tokenizers.

A reachable token is made by one merge, whatever text it is in (see `docs/architecture.md`). So a merge is the place in
its token where the left part ends, and the order of the merges. Of the new vocabulary, tokens that the base has too are
references to it.
"""

import base64
import json
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from tokengraft import _core
from tokengraft.tokenizer.kind import byte_token
from tokengraft.tokenizer.tokenizer import Tokenizer
from tokengraft.verify.against_base import places_of
from tokengraft.vocab_plan import VocabPlan

ADDED, OUTSIDE, UNREACHABLE = 1, 2, 4
"""Flags of a token: an added token; a token that BPE never makes of text, because the model's vocabulary lacks it or
its text is not spelled in the byte-level alphabet; a token that fails the Self-Tokenization Test."""


def packed_tokenizers(base: Tokenizer, new: Tokenizer, plan: VocabPlan) -> dict[str, bytes]:
    """Columns of both vocabularies by name, not compressed."""
    before, after, same_kind = _Tokens.of(base), _Tokens.of(new), base.kind == new.kind
    copied = np.array([source if isinstance(source, int) else -1 for source in plan.sources], np.int64)[after.ids]
    is_shared, references = copied >= 0, np.searchsorted(before.ids, copied)
    columns = {f"base.{name}": column for name, column in before.columns(np.full(len(before.ids), True)).items()}
    columns |= {f"new.{name}": column for name, column in after.columns(~(is_shared & same_kind)).items()}
    columns["new.ids"] = varints(np.diff(after.ids, prepend=-1))
    columns["new.flags"] = after.flags.tobytes()
    # 0 for a new token; else 1 plus the difference from the reference that is expected, the next one.
    shared, sources = references[is_shared], np.zeros(len(references), np.int64)
    sources[is_shared] = 1 + signed(np.diff(shared, prepend=-1) - 1)
    columns["new.sources"] = varints(sources)
    if same_kind:
        # The tokens of both that another merge makes now: their distance in the list of tokens, and the new split.
        moved = is_shared.nonzero()[0][before.splits[shared] != after.splits[is_shared]]
        columns["new.moved_splits"] = varints(np.stack([np.diff(moved, prepend=0), after.splits[moved]], 1).ravel())
    for side, tokens in (("base", before), ("new", after)):
        columns[f"{side}.merges"] = varints(signed(np.diff(tokens.merged, prepend=-1)))
    return columns


@dataclass(frozen=True)
class _Tokens:
    """The tokens of a tokenizer, by ascending id."""

    ids: np.ndarray
    flags: np.ndarray
    lengths: np.ndarray
    text: np.ndarray
    """The bytes of all tokens of a byte-level vocabulary; of others, their strings, in which a byte is `<0xNN>`."""
    splits: np.ndarray
    """The length of the left part of the merge of a token; 0 if no merge makes it."""
    merged: np.ndarray
    """The places of the tokens that merges make, by the rank of the merge."""
    scripts: np.ndarray
    """The places of their scripts in ``script_names``."""
    script_names: list[str]

    @classmethod
    def of(cls, tokenizer: Tokenizer) -> "_Tokens":
        numbers, lengths, text, outside = tokenizer.core_model.columns(tokenizer.unlisted)
        ids = np.frombuffer(numbers, "<u4").astype(np.int64)
        sizes, splits = np.frombuffer(lengths, "<u4").astype(np.int64), np.zeros(len(ids), np.int64)
        applied = np.frombuffer(tokenizer.core_model.applied(), "<u4").reshape(-1, 3)
        merged = places_of(ids, applied[:, 0])
        splits[merged] = sizes[places_of(ids, applied[:, 1])]
        flags = ADDED * np.isin(ids, [token.id for token in tokenizer.added])
        script_names, scripts = tokenizer.core_model.scripts(tokenizer.unlisted)
        flags += OUTSIDE * np.frombuffer(outside, np.uint8) + UNREACHABLE * np.isin(ids, tokenizer.unreachable)
        columns = np.frombuffer(text, np.uint8), splits, merged, np.frombuffer(scripts, np.uint8)
        return cls(ids, flags.astype(np.uint8), sizes, *columns, script_names)

    def columns(self, chosen: np.ndarray) -> dict[str, bytes]:
        """The columns of some of the tokens."""
        used, scripts = np.unique(self.scripts[chosen], return_inverse=True)
        return {
            "ids": varints(np.diff(self.ids[chosen], prepend=-1)),
            "flags": self.flags[chosen].tobytes(),
            "lengths": varints(self.lengths[chosen]),
            "text": self.text[np.repeat(chosen, self.lengths)].tobytes(),
            "splits": varints(self.splits[chosen]),
            "scripts": scripts.astype(np.uint8).tobytes(),
            "script_names": "\n".join(self.script_names[place] for place in used).encode(),
        }


def tokenizer_settings(tokenizer: Tokenizer) -> dict[str, Any]:
    """What the page needs beside the vocabulary. ``pipeline`` has a `reason` if the page cannot encode exactly."""
    byte_level = tokenizer.kind == "byte-level"
    return {
        "kind": tokenizer.kind,
        "tokens": len(tokenizer),
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
    parts = np.frombuffer(tokenizer.core_vocabulary.merge_ids(), "<u4")
    if stand_ins and np.isin(parts, [part for part in stand_ins if part is not None]).any():
        return {"reason": "merges join the tokens that stand for characters that the vocabulary lacks"}
    return None


def _unknown(tokenizer: Tokenizer) -> int | None:
    """The id of the unknown token."""
    name = tokenizer.model.get("unk_token")
    return None if name is None else tokenizer.vocab.get(name)


def signed(values: np.ndarray) -> np.ndarray:
    """Whole numbers as natural ones.

    >>> signed(np.array([0, -1, 1, -2])).tolist()
    [0, 1, 2, 3]
    """
    return np.where(values >= 0, 2 * values, -2 * values - 1)


def varints(values: Iterable[int] | np.ndarray) -> bytes:
    """Natural numbers, seven bits a byte, the lowest first.

    >>> varints([1, 300]).hex()
    '01ac02'
    """
    left = values.astype(np.int64) if isinstance(values, np.ndarray) else np.fromiter(values, np.int64)
    parts, used = list[np.ndarray](), [np.full(len(left), True)]
    while not parts or used[-1].any():
        parts.append(left & 0x7F | np.where(left > 0x7F, 0x80, 0))
        used.append(left > 0x7F)
        left = left >> 7
    return bytes(np.stack(parts, 1).astype(np.uint8)[np.stack(used[:-1], 1)])


def compressed(columns: Mapping[str, bytes]) -> str:
    """Columns as base64 of deflated data: the lengths and names as JSON in the first line, then the columns."""
    head = json.dumps([[name, len(column)] for name, column in columns.items()]).encode() + b"\n"
    return base64.b64encode(zlib.compress(head + b"".join(columns.values()))).decode()
