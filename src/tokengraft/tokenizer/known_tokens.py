"""Tokens that are known by their names: reserved ones, which models keep for later, and numbered ones.

Programs compute with the ids of numbered tokens: timestamps, codes of sound and images, sentinels.
`KINDS` is the table of what is known. `broken` names what an edit broke, for checks; `require_unbroken` refuses it, for
transplants. `require_ids` and `end_warnings` say before an extension that new tokens would get ids which are taken for
numbered tokens.
"""

import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from tokengraft.errors import CheckpointError, UnsupportedTokenizerError
from tokengraft.tokenizer.rewrite import VOCAB_TXT, stale_files
from tokengraft.tokenizer.tokenizer import Tokenizer


class Kind(NamedTuple):
    """A kind of numbered tokens. The ids of one kind follow each other, and must go on to do so."""

    name: str
    pattern: str
    rest: bool = False
    """Whether every id from the first one on is taken for one of them. Then no other token may follow."""
    before: str = ""
    """The token before the first one. With it, the range is known even if the numbered tokens are not listed."""
    from_end: bool = False
    """Whether training scripts count them from the end of the vocabulary."""


KINDS = (
    # transformers: `no_timestamps_token_id + 1`, in its processor of logits and its decoder.
    Kind("timestamps of Whisper", r"<\|\d+\.\d\d\|>", rest=True, before="<|notimestamps|>"),
    # Programs for these models test `token_id >= offset`.
    Kind("codes of sound, as GLM-4-Voice has them", r"<\|audio_\d+\|>", rest=True),
    Kind("codes of sound, as Orpheus has them", r"<custom_token_\d+>", rest=True),
    # Scripts for span corruption: `len(tokenizer) - n`.
    Kind("sentinels of T5", r"<extra_id_\d+>", from_end=True),
    Kind("positions of PaliGemma and Florence-2", r"<loc_?\d+>"),
    Kind("masks of PaliGemma", r"<seg\d+>"),
    Kind("codes of images of Emu3", r"<\|visual token \d+\|>"),
)
HINT = "replace tokens, which changes no other id: `tokengraft adapt --swap N`, with a number"


class _Found(NamedTuple):
    """The numbered tokens of one kind in a tokenizer."""

    kind: Kind
    ids: dict[str, int]
    first: int
    """The first id of the range."""
    others: list[str]
    """Tokens that are not numbered and have ids after the first."""


def _found(tokenizer: Tokenizer) -> Iterator[_Found]:
    added, all_ids = [token.content for token in tokenizer.added], tokenizer.ids
    for kind in KINDS:
        ids = {content: all_ids[content] for content in added if re.fullmatch(kind.pattern, content)}
        # A name or two may be there by chance.
        if kind.before not in all_ids if kind.before else len(ids) < 3:
            continue
        first = all_ids[kind.before] + 1 if kind.before else min(ids.values())
        others = [string for string, token_id in all_ids.items() if token_id >= first and string not in ids]
        yield _Found(kind, ids, first, others)


def broken(tokenizer: Tokenizer, base: Tokenizer | None) -> list[str]:
    """What is wrong with the ids of numbered tokens, in words; with a base, what it does not have too.

    A tokenizer without any of a kind has none to be wrong: it may be of another model.
    """
    now, before = ({one.kind.name: one for one in _found(t)} for t in (tokenizer, base or tokenizer))
    wrong = []
    for name, was in ((name, was) for name, was in before.items() if name in now):
        kind, one = was.kind, now[name]
        known = {*was.others} if base else set() if kind.before else {*one.others}
        if kind.rest and not (known and not kind.before):
            taken = f"and every id from {one.first:,} on is one of the {name}"
            more = (string for string in one.others if string not in known)
            wrong += [f"{string!r} has the id {tokenizer.ids[string]:,}, {taken}" for string in more]
        for content, token_id in was.ids.items():
            if content not in one.ids:
                wrong.append(f"{content!r}, one of the {name}, was removed")
            elif one.ids[content] - one.first != token_id - was.first:
                expected = one.first + token_id - was.first
                wrong.append(
                    f"{content!r} has the id {one.ids[content]:,}; as one of the {name} it must be {expected:,}"
                )
    return wrong


def require_unbroken(tokenizer: Tokenizer, base: Tokenizer) -> None:
    """Refuses to give a model a tokenizer in which ids of numbered tokens are wrong."""
    if wrong := broken(tokenizer, base):
        raise CheckpointError(f"in the new tokenizer, {wrong[0]}", hint=HINT)


def has_numbered(tokenizer: Tokenizer) -> bool:
    """Whether a tokenizer has numbered tokens of a known kind."""
    return any(True for _ in _found(tokenizer))


def require_ids(tokenizer: Tokenizer, n: int, freed: int = 0) -> None:
    """Refuses n new tokens, after ``freed`` ids became free, if some would get ids that numbered tokens have."""
    for one in _found(tokenizer):
        if not one.kind.rest or (one.others and not one.kind.before):
            continue
        free = freed + one.first - sum(token_id < one.first for token_id in tokenizer.ids.values())
        if n > free:
            raise UnsupportedTokenizerError(
                f"the tokenizer has {one.kind.name}: every id from {one.first:,} on is taken for one. {n:,} new tokens "
                f"need ids below, where {free:,} are free",
                hint=HINT,
            )


def end_warnings(tokenizer: Tokenizer, base: Tokenizer) -> Iterator[str]:
    """Warnings of numbered tokens that scripts count from the end, and that are no longer the last."""
    for was in _found(base):
        last = max(was.ids, key=was.ids.__getitem__, default="")
        if was.kind.from_end and was.ids[last] == base.n_rows - 1 and tokenizer.ids.get(last) != tokenizer.n_rows - 1:
            yield (
                f"new tokens follow `{last}`: scripts that count the {was.kind.name} from the end of the vocabulary, "
                "as `len(tokenizer) - n`, take new tokens for them; use their ids by name"
            )


RESERVED = re.compile(
    r"<unused_?\d+>|\[unused_?\d+\]|<\|?reserved_[a-z_]*\d+\|?>|\[control_\d+\]|<SPECIAL_(?:[2-9]\d|\d{3,})>"
)
"""The names of reserved tokens: Gemma, BERT, Llama-3, Mistral, tekken, which has other names for the first 20."""


def reserved_tokens(tokenizer: Tokenizer, counted: Mapping[str, int] | None = None) -> set[int]:
    """The ids of reserved tokens that occur in no chat template, post-processor or setting, and are not ``counted``.

    They are added tokens, or ordinary ones in vocabularies of WordPiece.
    """
    listings = ("added_tokens.json", "vocab.json", "merges.txt", VOCAB_TXT, tokenizer.piece_file)
    settings = [raw for name, raw in tokenizer.files.items() if name not in (*listings, *stale_files(tokenizer.files))]
    # `added_tokens_decoder` lists every added token, as `added_tokens` does: being listed is not being used.
    listing = r'"added_tokens_decoder"\s*:\s*\{(?:[^{}]|\{[^{}]*\})*\}'
    texts = [re.sub(listing, "", raw.decode(errors="replace")) for raw in settings]
    texts.append(str({name: value for name, value in tokenizer.document.items() if name != "added_tokens"}))
    added = {token.content for token in tokenizer.added}
    candidates = {
        string: token_id
        for string, token_id in tokenizer.ids.items()
        if (string in added or tokenizer.algorithm == "WordPiece") and RESERVED.fullmatch(string)
    }
    unused = {string for string in candidates if not (counted or {}).get(string)}
    return {candidates[string] for string in unused if not any(string in text for text in texts)}
