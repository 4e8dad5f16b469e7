"""Adds tokens to a tokenizer and removes them: which ids new tokens get, and where new merges are placed.

Kept ids never move. A new token that was removed before gets its old id back, if that is free. The others take, in this
order: ids that removed tokens had (`Tokenizer.freed`), other holes, ids after the highest; each group ascending. If N
tokens are removed and N are added, the new ones have exactly the ids of the removed ones, even if there were other
holes.
"""

from bisect import bisect_right
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate, chain, count
from math import inf

from tokengraft.errors import InvalidTokenizerError
from tokengraft.tokenizer.alphabet import CHARACTER_OF, SPACE
from tokengraft.tokenizer.rewrite import rank_refusal, stale_files
from tokengraft.tokenizer.tokenizer import Tokenizer

Pair = tuple[str, str]


def add_tokens(tokenizer: Tokenizer, tokens: Sequence[str], merges: Sequence[Pair]) -> Tokenizer:
    """The tokenizer with new tokens and new merges.

    New merges are placed after all others, with two exceptions for SentencePiece: merges that make runs of white space
    stay last, and with a SentencePiece model or a rank file, a merge that makes a token of the base is placed by the
    priority of that token.

    Raises:
        InvalidTokenizerError: A token exists already, or a merge names one that does not.
    """
    ids = dict(tokenizer.ids)
    known = [token for token in tokens if token in ids]
    if known or len(set(tokens)) < len(tokens):
        raise InvalidTokenizerError(
            f"the tokenizer has the token `{(known or tokens)[0]}` already", hint="apply an extension once, to its base"
        )
    ids |= _new_ids(tokens, ids, tokenizer.freed)
    missing = next((part for pair in merges for part in pair if part not in ids), None)
    if missing is not None:
        raise InvalidTokenizerError(
            f"a merge needs the token {missing!r}, which the tokenizer lacks",
            hint="apply an extension to the tokenizer it was trained for",
        )
    return tokenizer.edited(ids, _placed(tokenizer, merges), learned=tokens)


def remove_tokens(tokenizer: Tokenizer, tokens: Collection[str]) -> Tokenizer:
    """The tokenizer without some tokens, and without every merge that makes or uses one. Kept ids do not move.

    Raises:
        InvalidTokenizerError: It has no such token.
    """
    gone = set(tokens)
    ids = tokenizer.ids
    unknown = sorted(gone - ids.keys())
    if unknown:
        raise InvalidTokenizerError(
            f"the tokenizer has no token {unknown[0]!r}", hint="apply an order to the tokenizer it was made for"
        )
    return tokenizer.edited({string: token_id for string, token_id in ids.items() if string not in gone})


def require_room(tokenizer: Tokenizer) -> None:
    """Refuses a tokenizer whose main file cannot have new tokens, before any are learned.

    Raises:
        UnsupportedTokenizerError: It is a rank file, and its loaders would give tokens other ids.
    """
    if tokenizer.main == tokenizer.rank_file:
        token = CHARACTER_OF[255] * (1 + max(map(len, tokenizer.vocab)))
        ids = dict(tokenizer.ids) | _new_ids([token], tokenizer.ids, tokenizer.freed)
        refusal = rank_refusal(tokenizer.files, tokenizer.main, tokenizer.change_to(ids, [token]))
        if refusal:
            raise refusal


def left_out(base: Tokenizer, changed: Tokenizer) -> dict[str, str]:
    """The files of a tokenizer that a changed one does not have, each with the reason."""
    names = [name for name in stale_files(base.files) if name not in changed.files]
    if not names:
        return {}
    new = sorted((token for token in changed.ids if token not in base.ids), key=changed.ids.__getitem__)
    reasons = dict.fromkeys(names, "it lists the old tokens and cannot be rewritten")
    if base.rank_file in reasons:
        refusal = rank_refusal(base.files, base.rank_file, base.change_to(changed.ids, new))
        reasons |= {base.rank_file: refusal.message.partition(": ")[2]} if refusal else {}
    return reasons


def require_base(tokenizer: Tokenizer, base_hash: str, *, what: str) -> None:
    """Refuses to apply a result to another tokenizer than the one it was made for.

    Args:
        tokenizer: What the result is to be applied to.
        base_hash: The `Tokenizer.content_hash` that the result carries.
        what: The result, for the message.

    Raises:
        InvalidTokenizerError: The tokenizer has another hash.
    """
    if tokenizer.content_hash != base_hash:
        raise InvalidTokenizerError(
            f"the {what} was made for the tokenizer {base_hash[:12]}, this is {tokenizer.content_hash[:12]}: tokens, "
            "merges or pipeline differ",
            hint=f"apply the {what} to the tokenizer that it was made for, or make it again with this one",
        )


def free_ids(used: Iterable[int]) -> Iterator[int]:
    """The ids that no token has: the holes, ascending, then those after the highest.

    >>> from itertools import islice
    >>> list(islice(free_ids([0, 1, 4]), 4))
    [2, 3, 5, 6]
    """
    taken = set(used)
    highest = max(taken, default=-1)
    return chain((token_id for token_id in range(highest) if token_id not in taken), count(highest + 1))


def first_whitespace_merge(tokenizer: Tokenizer) -> int:
    """The rank from which on all merges make runs of white space: SentencePiece types merge those last.

    With a SentencePiece model, only runs that score below all other pieces count: new pieces are placed before those.
    """
    end = tokenizer.core_vocabulary.n_merges
    if tokenizer.kind == "sentencepiece":
        model = tokenizer.piece_model
        runs = {token_id: string for string, token_id in tokenizer.ids.items() if not string.strip(SPACE)}
        while end and runs.keys() >= set(tokenizer.merges[end - 1]):
            product = "".join(runs[part] for part in tokenizer.merges[end - 1])
            if model and product in model.normal and product not in model.last_runs:
                break
            end -= 1
    return end


def before_whitespace_merges(tokenizer: Tokenizer) -> Tokenizer:
    """The tokenizer that training starts from, without the merges of white space.

    New merges are placed before those of white space, so training must not apply the latter.
    """
    end = first_whitespace_merge(tokenizer)
    has_runs = end < tokenizer.core_vocabulary.n_merges
    return replace(tokenizer, merges=tokenizer.merges[:end]) if has_runs else tokenizer


def unreachable_ranks(tokenizer: Tokenizer) -> dict[str, tuple[int, int]]:
    """Tokens that merges cannot reach but that could be merged if their parts existed, each with its rank.

    The rank is the position of the merge that it precedes, and its order among the tokens that precede the same merge.

    SentencePiece models and rank files merge any two tokens that make a token, by the priority of what they make;
    `tokenizer.json` only those listed. The two differ if a new token is the missing part of an old one. Without a file
    of that rule the result is empty.
    """
    priorities = tokenizer.priorities
    if priorities is None or not tokenizer.structure.unreachable:
        return {}
    unreachable = (tokenizer.strings[token_id] for token_id in tokenizer.structure.unreachable)
    tokens = [string for string in unreachable if string in priorities]
    products = (left + right for left, right in tokenizer.merge_strings())
    # A product that has no priority is ranked with the merge before it.
    ascending = list(accumulate((priorities.get(product, -inf) for product in products), max))
    ranks: dict[str, tuple[int, int]] = {}
    at_place = Counter[int]()
    for string in sorted(tokens, key=lambda string: (priorities[string], tokenizer.ids[string])):
        place = bisect_right(ascending, priorities[string])
        ranks[string] = (place, at_place[place])
        at_place[place] += 1
    return ranks


def _new_ids(tokens: Sequence[str], ids: Mapping[str, int], freed: Mapping[str, int]) -> dict[str, int]:
    """The ids of new tokens, in the order that the module describes."""
    used, again = set(ids.values()), dict[str, int]()
    returning = set[int]()
    for token in tokens:  # two tokens may have had one id, one after the other
        if token in freed and freed[token] not in used and freed[token] not in returning:
            again[token] = freed[token]
            returning.add(freed[token])
    free_again = set(freed.values()) - used - returning
    holes = (token_id for token_id in free_ids(used) if token_id not in returning and token_id not in free_again)
    others = chain(sorted(free_again), holes)
    return {token: again[token] if token in again else next(others) for token in tokens}


def _placed(tokenizer: Tokenizer, merges: Sequence[Pair]) -> list[tuple[int, Pair]]:
    """New merges in order, each with the rank of the merge of the tokenizer that it is placed before."""
    end, ranks = first_whitespace_merge(tokenizer), unreachable_ranks(tokenizer)
    learned = [(end, pair) for pair in merges if "".join(pair) not in ranks]
    reachable = sorted((ranks["".join(pair)], pair) for pair in merges if "".join(pair) in ranks)
    places = [(place, pair) for (place, _), pair in reachable]
    before = [placed for placed in places if placed[0] <= end]
    return [*before, *learned, *places[len(before) :]]
