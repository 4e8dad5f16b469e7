"""Rewrites a rank file (tiktoken, tekken) after a change of tokens, or says why it cannot express the change.

Ids are priorities there, and special tokens have the ids before or after all ranks.
"""

from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise
from typing import NoReturn

from tokengraft.errors import UnsupportedTokenizerError
from tokengraft.representation import FrozenDict
from tokengraft.tokenizer.change import Change
from tokengraft.tokenizer.rank_file import RankFile, known_encoding


def changed_ranks(files: Mapping[str, bytes], name: str, change: Change) -> RankFile:
    """The rank file of this name after a change. `UnsupportedTokenizerError` says why it cannot express the change."""
    ranks = RankFile.read(files[name], name)
    texts = {text for text, _ in change.specials.values()}
    learned = {token: token_id for token, token_id in change.ids.items() if token not in texts}
    order = [token for token in (*ranks.ids, *change.new) if token in learned]
    if len(order) < len(learned):
        other = min(learned.keys() - set(order))
        _refuse(name, f"it lacks the token {other!r}, which is not new", "remove the file from the folder")
    for before, after in pairwise(order):
        if learned[before] > learned[after]:
            what = "a new token" if after in change.new else f"the token {after!r}"
            _refuse(
                name,
                f"{what} has the id {learned[after]:,}, and {before!r}, which merges before it, has "
                f"{learned[before]:,}: ids are priorities there, so a new token cannot take a lower one",
                "close the holes before you extend (`tokengraft prune --ids compact`, `Tokenizer.compact`)",
            )
    by_place, shift = _special_places(files, name, ranks, change)
    ranks = _with_given_specials(name, ranks, change)
    lowest, highest = min(learned.values(), default=ranks.first), max(learned.values(), default=-1)
    end = highest + 1 if shift is None or ranks.header is not None else ranks.end + shift
    if lowest < ranks.first or highest >= end:
        _refuse(
            name,
            f"the id {highest:,} is after the special tokens, which have the ids after all ranks there"
            if highest >= end
            else f"the id {lowest:,} is one of a special token there",
            "extend it as a tokenizer.json (`tokengraft convert SOURCE --to huggingface`); after that, `tokengraft "
            "convert --to tiktoken --renumber` moves the special tokens behind the new ones. If no loader counts "
            "ranks, give special tokens their ids: `tokengraft convert --special-tokens` with a JSON object",
        )
    ids = FrozenDict({token: learned[token] for token in order})
    changed = replace(ranks, ids=ids, end=end, is_filled=by_place or ranks.is_filled)
    changed.require_writable()
    return changed


def _special_places(files: Mapping[str, bytes], name: str, ranks: RankFile, change: Change) -> tuple[bool, int | None]:
    """Whether more ranks would move the special tokens, and by how much their ids change.

    None if their ids do not depend on the ranks, or there are none.
    """
    before = {after: token_id for token_id, after in change.moved.items()}
    specials: dict[str, tuple[int, int | None]] = {
        text: (before[after], after) for after, (text, _) in change.specials.items() if after in before
    }
    gone_texts = change.gone.keys() - change.renamed.keys() - ranks.ids.keys()
    specials |= {text: (change.gone[text], None) for text in change.gone if text in gone_texts}
    by_place = False
    if ranks.header is None:
        # It is known for known files, and otherwise assumed where special tokens have the ids after the ranks.
        encoding = known_encoding(files, ranks)
        is_last = ranks.end in [token_id for token_id, _ in specials.values()]
        by_place = not isinstance(encoding.special_tokens, Mapping) if encoding else is_last
        specials = specials if by_place else {}
    else:
        specials = {text: ids for text, ids in specials.items() if ids[0] < ranks.first}
    gone = next((text for text, (_, after) in specials.items() if after is None), None)
    shifts = {after - before for before, after in specials.values() if after is not None}
    if gone is not None or len(shifts) > 1 or (ranks.header is not None and shifts - {0}):
        what = f"the special token {gone!r} was removed" if gone is not None else "special tokens have other ids"
        _refuse(name, f"{what}, and their loader gives them ids by their place", "keep the special tokens")
    return by_place, next(iter(shifts), None)


def _with_given_specials(name: str, ranks: RankFile, change: Change) -> RankFile:
    """The rank file with the new added tokens: a tekken file lists them, in the place of those that they replace."""
    if ranks.header is None or not change.given:
        return ranks
    texts = [change.renamed.get(text, text) for text in ranks.special_tokens]
    other = next((token for token in change.given if token not in texts), None)
    if other is not None:
        _refuse(
            name,
            f"the special token {other!r} has the id {change.ids[other]:,}, and special tokens have the first "
            f"{ranks.first:,} ids there",
            "give fewer special tokens than it has reserved ones, such as `<SPECIAL_20>`",
        )
    listed = list(ranks.header.get("special_tokens") or ())
    last = max(texts.index(token) for token in change.given)
    entries = [
        {**(listed[rank] if rank < len(listed) else {"is_control": True}), "rank": rank, "token_str": text}
        for rank, text in enumerate(texts[: max(len(listed), last + 1)])
    ]
    return replace(ranks, header=FrozenDict({**ranks.header, "special_tokens": entries}))


def _refuse(name: str, reason: str, hint: str) -> NoReturn:
    raise UnsupportedTokenizerError(f"`{name}` cannot express the change: {reason}", hint=hint)
