"""Adding and removing tokens: which ids new tokens get, and what extensions and prune orders share."""

import operator
import os
import re
from abc import ABC, abstractmethod
from bisect import bisect_right
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate, chain, count
from math import inf
from pathlib import Path
from typing import Any, ClassVar, SupportsIndex, TypeVar, overload

from tokengraft import _core
from tokengraft.errors import InvalidTokenizerError, OptionError, UnsupportedTokenizerError, require_type
from tokengraft.output.json_file import read_result, write_result_file
from tokengraft.tokenizer.change import Change
from tokengraft.tokenizer.kind import CHARACTER_OF, SPACE
from tokengraft.tokenizer.rank_edit import changed_ranks
from tokengraft.tokenizer.rewrite import stale_files
from tokengraft.tokenizer.tokenizer import Tokenizer

Pair = tuple[str, str]


def add_tokens(
    tokenizer: Tokenizer, tokens: Sequence[str], merges: Sequence[Pair], *, scores: Sequence[float] = ()
) -> Tokenizer:
    """The tokenizer with new tokens and new merges, or with their scores if it is Unigram.

    New merges are placed after all others, with two exceptions for SentencePiece: merges that make runs of white space
    stay last, and with a SentencePiece model or a rank file, a merge that makes a token of the base is placed by the
    priority of that token.
    """
    ids = dict(tokenizer.ids)
    known = [token for token in tokens if token in ids]
    if known or len(set(tokens)) < len(tokens):
        raise InvalidTokenizerError(
            f"the tokenizer has the token `{(known or tokens)[0]}` already", hint="apply an extension once, to its base"
        )
    if tokenizer.algorithm != "BPE":
        return _add_listed(tokenizer, tokens, dict(zip(tokens, scores, strict=False)))
    ids |= _new_ids(tokens, ids, tokenizer.freed)
    missing = next((part for pair in merges for part in pair if part not in ids), None)
    if missing is not None:
        raise InvalidTokenizerError(
            f"a merge needs the token {missing!r}, which the tokenizer lacks",
            hint="apply an extension to the tokenizer it was trained for",
        )
    # Each with the rank of the merge of the tokenizer that it is placed before, in order.
    end, ranks = first_whitespace_merge(tokenizer), unreachable_ranks(tokenizer)
    learned = [(end, pair) for pair in merges if "".join(pair) not in ranks]
    reachable = sorted((ranks["".join(pair)], pair) for pair in merges if "".join(pair) in ranks)
    before = [(place, pair) for (place, _), pair in reachable if place <= end]
    after = [(place, pair) for (place, _), pair in reachable if place > end]
    return tokenizer.edited(ids, [*before, *learned, *after], learned=tokens)


def with_characters(tokenizer: Tokenizer, characters: Sequence[str]) -> Tokenizer:
    """The tokenizer with new characters, if there are any."""
    return add_tokens(tokenizer, characters, []) if characters else tokenizer


def _add_listed(tokenizer: Tokenizer, tokens: Sequence[str], scores: Mapping[str, float]) -> Tokenizer:
    """As `add_tokens`, for vocabularies that are lists, without holes and merges.

    If there are as many new tokens as were removed, they take the ids of those, and no kept token has another id than
    before the removal. If there are fewer, they follow the renumbered tokens.
    """
    require_room(tokenizer, len(tokens))
    base = tokenizer.unpruned or tokenizer
    kept = {string: token_id for string, token_id in base.ids.items() if string in tokenizer.ids}
    freed = {string: token_id for string, token_id in base.ids.items() if string not in kept}
    if len(tokens) < len(freed):
        base, kept, freed = tokenizer, dict(tokenizer.ids), {}
    return base.edited(kept | _new_ids(tokens, kept, freed), learned=tokens, scores=scores)


def remove_tokens(tokenizer: Tokenizer, tokens: Collection[str]) -> Tokenizer:
    """The tokenizer without some tokens, and without every merge that makes or uses one.

    Kept ids of BPE do not move. Those of the other models are renumbered, because their vocabularies are lists, until
    as many tokens are added.
    """
    require_tokens(tokenizer, tokens)
    gone, ids = set(tokens), tokenizer.ids
    kept = dict(ids)
    for string in gone:
        del kept[string]
    if tokenizer.algorithm == "BPE":
        return tokenizer.edited(kept, learned=())
    renumbered = tokenizer.edited({string: i for i, string in enumerate(sorted(kept, key=kept.__getitem__))})
    return replace(renumbered, unpruned=tokenizer.unpruned or tokenizer)


def require_tokens(tokenizer: Tokenizer, tokens: Iterable[str]) -> None:
    """Refuses tokens to remove that the tokenizer does not have."""
    unknown = sorted(set(tokens) - tokenizer.ids.keys())
    if unknown:
        raise InvalidTokenizerError(
            f"the tokenizer has no token {unknown[0]!r}", hint="apply an order to the tokenizer it was made for"
        )


def require_room(tokenizer: Tokenizer, n: int, *, removed: int = 0) -> None:
    """Refuses a tokenizer that cannot have n new tokens after so many are removed, before any are learned."""
    apart = [content for _, content in tokenizer.unlisted]
    removed += len(tokenizer.unpruned) - len(tokenizer) if tokenizer.unpruned else 0
    if tokenizer.algorithm != "BPE" and apart and n not in (0, removed):
        raise UnsupportedTokenizerError(
            f"the vocabulary does not list the added token `{apart[0]}`, so its id would move behind new tokens",
            hint="replace as many tokens as you add, `tokengraft adapt --swap N` with a number; or prune alone: "
            "`tokengraft prune`, or `tokengraft adapt --remove`",
        )
    if tokenizer.main == tokenizer.rank_file:
        token = CHARACTER_OF[255] * (1 + max(map(len, tokenizer.vocab)))
        ids = dict(tokenizer.ids) | _new_ids([token], tokenizer.ids, tokenizer.freed)
        changed_ranks(tokenizer.files, tokenizer.main, Change(tokenizer.ids, ids, tokenizer.added))


def left_out(base: Tokenizer, changed: Tokenizer) -> dict[str, str]:
    """The files of a tokenizer that a changed one does not have, each with the reason."""
    names = [name for name in stale_files(base.files) if name not in changed.files]
    if not names:
        return {}
    reasons = dict.fromkeys(names, "it lists the old tokens and cannot be rewritten")
    if base.rank_file in reasons:
        try:
            changed_ranks(base.files, base.rank_file, Change(base.ids, changed.ids, changed.added))
        except UnsupportedTokenizerError as error:
            reasons[base.rank_file] = error.message.partition(": ")[2]
    return reasons


def require_base(tokenizer: Tokenizer, base_hash: str, *, what: str) -> None:
    """Refuses to apply a result to another tokenizer than the one with the hash that it was made for."""
    require_type("tokenizer", tokenizer, Tokenizer)
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
    core, model = tokenizer.core_vocabulary, tokenizer.piece_model
    end = core.n_merges
    while end and tokenizer.kind == "sentencepiece":
        product = "".join(core.merge_strings(end - 1, end)[0])
        if product.strip(SPACE) or (model and product in model.normal and product not in model.last_runs):
            break
        end -= 1
    return end


def before_whitespace_merges(tokenizer: Tokenizer) -> Tokenizer:
    """The tokenizer that training starts from, without the merges of white space.

    New merges are placed before those of white space, so training must not apply the latter.
    """
    end = first_whitespace_merge(tokenizer)
    if end == tokenizer.core_vocabulary.n_merges:
        return tokenizer
    return replace(tokenizer, core_vocabulary=_core.Vocabulary(dict(tokenizer.vocab), tokenizer.merges[:end]))


def unreachable_ranks(tokenizer: Tokenizer) -> dict[str, tuple[int, int]]:
    """Tokens that merges cannot reach but that could be merged if their parts existed, each with its rank.

    The rank is the position of the merge that it precedes, and its order among the tokens that precede the same merge.

    SentencePiece models and rank files merge any two tokens that make a token, by the priority of what they make;
    `tokenizer.json` only those listed. The two differ if a new token is the missing part of an old one. Without a file
    of that rule the result is empty.
    """
    priorities = tokenizer.merge_priorities
    if priorities is None or not tokenizer.unreachable:
        return {}
    unreachable = (tokenizer.strings[token_id] for token_id in tokenizer.unreachable)
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
    used, again = set(ids.values()), dict[int, str]()
    for token in tokens:
        if token in freed and freed[token] not in used:
            again.setdefault(freed[token], token)  # two tokens may have had one id, one after the other
    free_again = set(freed.values()) - used - again.keys()
    holes = (token_id for token_id in free_ids(used) if token_id not in again and token_id not in free_again)
    others = chain(sorted(free_again), holes)
    returning = {token: token_id for token_id, token in again.items()}
    return {token: returning[token] if token in returning else next(others) for token in tokens}


Result = TypeVar("Result", bound="EditResult")


class EditResult(ABC):
    """Tokens to add or to remove, in order, for one tokenizer.

    ``result[:n]`` has the first n of them, and ``result[0]`` is the first.
    """

    base_hash: str
    """The `Tokenizer.content_hash` of the tokenizer it was made for; `apply` refuses any other."""
    _what: ClassVar[str]
    """The result in messages, with its article."""
    _command: ClassVar[str]
    """The command that writes a file of it."""
    _in_a_file: ClassVar[tuple[str, ...]]
    """The fields in the order of its file."""

    @property
    @abstractmethod
    def tokens(self) -> tuple[str, ...]:
        """The tokens in order, as the vocabulary spells them."""

    def __iter__(self) -> Iterator[str]:
        return iter(self.tokens)

    @overload
    def __getitem__(self, cut: int) -> str: ...

    @overload
    def __getitem__(self: Result, cut: slice) -> Result: ...

    def __getitem__(self: Result, cut: int | slice) -> Result | str:
        """One of the tokens, or the result of the first n, written ``[:n]``.

        Raises:
            IndexError: There is no such token.
            OptionError: The slice does not begin at 0 or has a step, or there are too few.
        """
        if isinstance(cut, SupportsIndex):
            return self.tokens[cut]
        begins_at_0 = isinstance(cut, slice) and cut.start in (None, 0) and cut.step in (None, 1)
        if not begins_at_0 or not isinstance(cut.stop, SupportsIndex | None):
            raise self._cannot_cut(cut)
        return self if cut.stop is None else self._first(operator.index(cut.stop))

    def apply(self, tokenizer: Tokenizer) -> Tokenizer:
        """The tokenizer with the change. Kept ids do not move, except in models without merges.

        New tokens take the ids of removed tokens and other holes first. `Tokenizer.compact` closes the holes that
        removed tokens leave. Unigram and WordPiece vocabularies have none: they are lists.

        Raises:
            InvalidTokenizerError: It is not the tokenizer that the result was made for.
        """
        require_base(tokenizer, self.base_hash, what=self._what.split(" ", 1)[1])
        return self._edited(tokenizer)

    def save(self, out: str | os.PathLike[str], *, force: bool = False) -> Path:
        """Writes a JSON file and returns its path.

        Raises:
            OutputError: The file exists or cannot be written.
        """
        return write_result_file({name: getattr(self, name) for name in self._in_a_file}, out, force=force)

    @classmethod
    def load(cls: type[Result], path: str | os.PathLike[str]) -> Result:
        """The result in a file that ``save`` wrote.

        Raises:
            CountsError: It is not such a file.
        """

        def parse(document: Any) -> Result:
            base_hash = document["base_hash"]
            if not isinstance(base_hash, str) or not re.fullmatch(r"[0-9a-f]{64}", base_hash):
                raise ValueError(f"`base_hash` is {base_hash!r}, not the hash of a tokenizer")
            return cls._parsed(document, base_hash)

        return read_result(path, parse, what=cls._what, command=cls._command)

    def _cannot_cut(self, cut: object) -> OptionError:
        return OptionError(f"{self._what} can only be cut as [:n], not [{cut}]", hint="write [:4000], for instance")

    @abstractmethod
    def _first(self: Result, n: int) -> Result:
        """The result of the first n tokens."""

    @abstractmethod
    def _edited(self, tokenizer: Tokenizer) -> Tokenizer:
        """The tokenizer with the change; it is the one that the result was made for."""

    @classmethod
    @abstractmethod
    def _parsed(cls: type[Result], document: Any, base_hash: str) -> Result:
        """The result that a document describes.

        Raises:
            TypeError, ValueError, KeyError, AttributeError: It describes none.
        """
