"""The scripts that a counted text is written in."""

from collections import Counter
from fractions import Fraction

from tokengraft import _core
from tokengraft.counts.pretoken_counts import PretokenCounts

RARE = Fraction(1, 100)
"""A text is not written in a script that has a smaller share of its letters."""
NO_SCRIPT = frozenset(("Common", "Inherited", "Unknown"))
"""What Unicode says of characters that are not of one script."""


def letters_of(text: PretokenCounts) -> tuple[dict[str, str], Counter[str]]:
    """The script of every character of a text that has one, and how many letters of each script the text has."""
    characters = dict(text.table.characters())
    named = zip(characters, _core.scripts([*characters]), strict=True)
    script_of = {character: name for character, (name,) in named if name not in NO_SCRIPT}
    letters = Counter[str]()
    for character, name in script_of.items():
        letters[name] += characters[character]
    return script_of, letters


def written_in(letters: Counter[str]) -> set[str]:
    """The scripts that a text is written in, by the numbers of its letters."""
    most = {name for name, _ in letters.most_common(1)}
    return most | {name for name, number in letters.items() if number >= RARE * letters.total()}
