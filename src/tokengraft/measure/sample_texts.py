"""Built-in sample texts: source code, Markdown, JSON, a chat and the like, which corpora of cleaned text lack.

They are measured when the vocabulary changes, so that damage to such text is seen. Nothing else uses them: they decide
neither what is removed nor what is protected.
"""

import re
from collections.abc import Sequence
from functools import cache
from importlib import resources
from typing import NamedTuple

from tokengraft.tokenizer.tokenizer import Tokenizer

MOST = 0.01
"""A sample that needs a larger share of tokens more than before gets a warning."""

NAMED = 5
"""How many samples a message names."""
REMOVED = "add some to {}, protect its tokens with --protect FILE, or remove fewer tokens"
"""What helps if tokens were removed, with a place for the option that takes text whose tokens are kept."""
ADDED = "preserve some with --preserve FILES, or add fewer tokens"
"""What helps if tokens were only added."""


class SampleChange(NamedTuple):
    """The tokens of a sample text, before and after."""

    name: str
    before: int
    after: int

    @property
    def change(self) -> float:
        """The change of the number of tokens, relative to that before."""
        return self.after / self.before - 1 if self.before else 0.0

    @property
    def is_worse(self) -> bool:
        """Whether it needs clearly more tokens, by the figure that is shown: in tenths of a percent."""
        return round(self.change, 3) > MOST


@cache
def built_in_texts() -> dict[str, str]:
    """The sample texts by name."""
    content = resources.files("tokengraft.measure").joinpath("sample_texts.txt").read_text(encoding="utf-8")
    _, *parts = re.split(r"^=== (.+) ===\n", content, flags=re.MULTILINE)
    return dict(zip(parts[::2], parts[1::2], strict=True))


def sample_changes(base: Tokenizer, new: Tokenizer) -> tuple[SampleChange, ...]:
    """The tokens that two tokenizers need for each sample text, the largest increase first."""
    texts = built_in_texts()
    before, after = (tokenizer.encode_batch([*texts.values()]) for tokenizer in (base, new))
    lengths = zip(texts, map(len, before), map(len, after), strict=True)
    return tuple(sorted((SampleChange(*each) for each in lengths), key=lambda each: -each.change))


def sample_warnings(changes: Sequence[SampleChange], remedy: str) -> tuple[str, ...]:
    """A warning that names the samples that need clearly more tokens than before, if there are any, and what helps."""
    worse = [f"{each.name} {each.change:+.1%}" for each in changes if each.is_worse]
    if not worse:
        return ()
    more = f" and {len(worse) - NAMED} more" if len(worse) > NAMED else ""
    return (
        f"built-in sample texts need more tokens than before: {', '.join(worse[:NAMED])}{more}; if the model must "
        f"handle such text, {remedy}",
    )
