"""`preserved_text`: which pretokens of a text are preserved. `preserve_cost`: what that costs in compression."""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from fractions import Fraction
from functools import partial

import numpy as np

from tokengraft.counts.count import RARE, letters_of, written_in
from tokengraft.counts.pretoken_counts import PretokenCounts, chosen_rows
from tokengraft.errors import OptionError, option, require_type
from tokengraft.learn.continued import extend
from tokengraft.learn.extension import Extension
from tokengraft.learn.include import WordList
from tokengraft.learn.limits import Limits, Parity, languages_of
from tokengraft.learn.trainer import CHARACTER_COVERAGE, WordListError
from tokengraft.representation import FrozenDict, shown
from tokengraft.tokenizer.marks import kept_marks
from tokengraft.tokenizer.tokenizer import Tokenizer

LEAST_GAIN = Fraction(1, 10)
"""Preserving text must leave this share of the gain that is possible without it."""


@dataclass(frozen=True)
class Preserved:
    """The text that keeps its tokens and ids."""

    counts: PretokenCounts
    always: PretokenCounts | None = None
    """The part of it that is not text of the user: the check text of llama.cpp's converter."""
    left_out: PretokenCounts | None = None
    """Pretokens of the text that are not preserved."""
    scripts: tuple[str, ...] = ()
    """The scripts of those, sorted."""
    joined: PretokenCounts | None = None
    """Words that are not preserved because they are not cut at marks any more; None if no marks are joined."""

    def noted_in(self, extension: Extension) -> Extension:
        """The extension with what was not preserved in its provenance."""
        noted = dict(extension.provenance)
        if self.left_out is not None:
            noted["not_preserved"] = {"scripts": [*self.scripts], **_size(self.left_out)}
        if self.joined is not None:
            noted["joined"] = _size(self.joined)
        return replace(extension, provenance=FrozenDict(noted))


def _size(counts: PretokenCounts) -> dict[str, int]:
    return {"pretokens": len(counts), "occurrences": counts.table.total()}


def preserved_text(
    texts: Sequence[PretokenCounts],
    targets: Sequence[PretokenCounts] | None,
    *,
    exactly: bool = False,
    always: PretokenCounts | None = None,
) -> Preserved | None:
    """The pretokens that keep their tokens and ids; None if there are none.

    A few words of the target language in a text would forbid most of the merges that this language needs. So pretokens
    with letters of a script are left out, if a target is written in the script and the text is not: the pretokens with
    its letters have less than `RARE` of all letters of the text. Each text is looked at by itself. Without ``targets``,
    they may be of any script. ``exactly`` leaves out nothing, and counts in ``always`` are preserved as they are.
    """
    scripts = None if targets is None else {name for text in targets for name in written_in(letters_of(text)[1])}
    parts = [(text, None, ()) if exactly else _split(text, scripts) for text in texts]
    kept = [part for part, *_ in parts] + ([] if always is None else [always])
    left_out = [part for _, part, _ in parts if part is not None]
    names = tuple(sorted({name for *_, named in parts for name in named}))
    return Preserved(_sum(kept), always, _sum(left_out) if left_out else None, names) if kept else None


def _sum(parts: Sequence[PretokenCounts]) -> PretokenCounts:
    # Texts that were normalized and texts that were not are preserved together.
    alike = [replace(part, normalize=None) for part in parts]
    return sum(alike[1:], alike[0])


def _split(
    text: PretokenCounts, scripts: set[str] | None
) -> tuple[PretokenCounts, PretokenCounts | None, tuple[str, ...]]:
    """The pretokens of a text that are preserved, the others, and the scripts of those."""
    script_of, letters = letters_of(text)
    rare = {name for name in letters if scripts is None or name in scripts} - written_in(letters)
    if not rare:
        return text, None, ()
    occurrences = np.frombuffer(text.table.columns()[2], "<u8")
    written, sizes = dict[int, set[str]](), Counter[str]()
    for place, pretoken in _with_any(text, (letter for letter, name in script_of.items() if name in rare)):
        named = [script_of[character] for character in pretoken if character in script_of]
        written[place] = rare.intersection(named)
        sizes.update(dict.fromkeys(written[place], len(named) * int(occurrences[place])))
    # subtle: a pretoken may be a whole line, most of it in other scripts; leaving out many of these is no small loss
    rare = {name for name in rare if sizes[name] < RARE * letters.total()}
    mask = np.zeros(len(occurrences), bool)
    mask[[place for place, names in written.items() if names & rare]] = True
    if not mask.any():
        return text, None, ()
    kept, left_out = (replace(text, table=chosen_rows(text.table, chosen)) for chosen in (~mask, mask))
    return kept, left_out, tuple(rare)


def _with_any(text: PretokenCounts, characters: Iterable[str]) -> Iterator[tuple[int, str]]:
    """The pretokens that have one of the characters, with their places."""
    data, offsets, _ = text.table.columns()
    starts = np.frombuffer(offsets, "<u8")
    pattern = b"|".join(re.escape(character.encode()) for character in characters)
    found = np.fromiter((match.start() for match in re.finditer(pattern, data)), np.uint64)
    for place in np.unique(np.searchsorted(starts, found, side="right") - 1).tolist():
        yield place, data[int(starts[place]) : int(starts[place + 1])].decode(errors="replace")


def split_by_joining(text: PretokenCounts, joined: Tokenizer) -> tuple[PretokenCounts, PretokenCounts]:
    """The pretokens of a joined tokenizer that are split as before, and words that were cut at marks.

    A word may have the ids that it had, and what follows it not: `ि,` was one pretoken.
    """
    marks = kept_marks(joined)
    places = [place for place, pretoken in _with_any(text, marks) if not {*marks}.isdisjoint(pretoken[1:])]
    mask = np.zeros(len(text), bool)
    mask[places] = True
    kept, words = (replace(text, table=chosen_rows(text.table, chosen)) for chosen in (~mask, mask))
    return kept, words


@shown
@dataclass(frozen=True)
class PreserveCost:
    """The tokens of the training text with and without preserved text."""

    base: int
    """Tokens under the base."""
    preserved: int
    """Tokens under the extension that preserves text."""
    free: int
    """Tokens under the extension that preserves none."""

    @property
    def share(self) -> float:
        """How many more tokens the text has because of the preserved text, as a share: 0.01 is one percent."""
        return self.preserved / self.free - 1 if self.free else 0.0

    @property
    def gain(self) -> float:
        """The relative increase of bytes per token."""
        return self.base / self.preserved - 1 if self.preserved else 0.0

    @property
    def possible_gain(self) -> float:
        """The relative increase of bytes per token without preserved text."""
        return self.base / self.free - 1 if self.free else 0.0

    def as_dict(self) -> dict[str, float]:
        """The numbers as JSON-ready data."""
        return asdict(self) | {"share": self.share}


def cost_of(texts: Sequence[PretokenCounts], base: Tokenizer, preserved: Tokenizer, free: Tokenizer) -> PreserveCost:
    """The cost of preserved text, measured on the training texts."""
    return PreserveCost(*(sum(sum(text.tokens(one).values()) for text in texts) for one in (base, preserved, free)))


def lost_gain(cost: PreserveCost, refused: int) -> OptionError | None:
    """An error, if preserving text leaves less than `LEAST_GAIN` of the possible gain; else None."""
    if cost.gain >= LEAST_GAIN * Fraction(cost.possible_gain):
        return None
    return OptionError(
        f"bytes per token of the training text increase by {cost.gain:.1%} with the preserved text, and by "
        f"{cost.possible_gain:.1%} without it: {refused:,} candidates were refused because they occur in it",
        hint="preserve less, such as counts without rare pretokens (`tokengraft count --min-count 10`), drop "
        f"{option('preserve')} or {option('preserve_keep')}, or accept this with {option('preserve_exactly')}",
    )


def preserve_cost(
    tokenizer: Tokenizer,
    counts: PretokenCounts | Parity,
    extension: Extension,
    *,
    limits: Limits | None = None,
    character_coverage: float = CHARACTER_COVERAGE,
    include: WordList | Sequence[str] | None = None,
) -> PreserveCost:
    """What preserving text cost, measured on the training text by training once more without it.

    Args:
        tokenizer: The base.
        counts: What the extension was learned on.
        extension: The result of ``extend(tokenizer, counts, ..., preserve=...)``.
        limits: The limits that it was learned with.
        character_coverage: The coverage that it was learned with.
        include: The word list that it was learned with.
    """
    require_type("extension", extension, Extension)
    train = partial(extend, tokenizer, counts, limits=limits, character_coverage=character_coverage, include=include)
    free = trained_freely(train, extension.asked)
    return cost_of(languages_of(counts), tokenizer, extension.apply(tokenizer), free.apply(tokenizer))


def is_restricted(extension: Extension) -> bool:
    """Whether preserved text may have changed what was learned: pairs, words of a list, or characters of pieces."""
    return bool(extension.refused or extension.included or extension.provenance.get("rules"))


def trained_freely(train: Callable[[int], Extension], n: int) -> Extension:
    """The extension by n tokens without preserved text, cut if a word list needs more then.

    Words that the preserved text does not allow need tokens too.
    """
    try:
        return train(n)
    except WordListError as error:
        return train(error.needed)[:n]
