"""Every place in a model's configs that names a token id, rewritten from a plan."""

import re
from collections.abc import Mapping
from typing import Any

from tokengraft.errors import CheckpointError
from tokengraft.plan import VocabPlan

MAIN = "config.json"
CONFIGS = (MAIN, "generation_config.json", "preprocessor_config.json", "processor_config.json")
_ID_FIELD = re.compile(r"(^|_)token_(id|ids|index)$|^(begin_)?suppress_tokens$|^(bad|force)_words_ids$")
_PLACED = "forced_decoder_ids"
"""Pairs of a place in the output and an id."""
_BIASED = "sequence_bias"
"""Pairs of a list of ids and a number."""


def renumber_config(config: Mapping[str, Any], plan: VocabPlan, rows: tuple[int, int], name: str) -> dict[str, Any]:
    """A config with the ids of the new vocabulary, and its size where it says the old one.

    Args:
        config: The content of the file; it is not changed.
        plan: Where ids went.
        rows: Rows of the embedding before and after.
        name: What to call the file.

    Raises:
        CheckpointError: It names a token that is gone.
    """
    renumbering = _Renumbering(plan, rows, name)
    changed: dict[str, Any] = renumbering.walk(dict(config))
    nested = changed.get("text_config")
    for part in (changed, nested):
        if isinstance(part, dict) and part.get("vocab_size") in (rows[0], plan.rows_before):
            part["vocab_size"] = rows[1]
    if name == MAIN and rows[0] != rows[1] and "vocab_size" not in {**changed, **(nested or {})}:
        # The class has the old size as its default.
        (nested if isinstance(nested, dict) else changed)["vocab_size"] = rows[1]
    return changed


class _Renumbering:
    def __init__(self, plan: VocabPlan, rows: tuple[int, int], name: str) -> None:
        self.moved, self.removed, self.name = dict(plan.moved), frozenset(plan.removed), name
        # Padding moves as its rows do.
        self.moved |= {i: i - plan.rows_before + plan.rows_after for i in range(plan.rows_before, rows[0])}

    def walk(self, value: Any) -> Any:
        if isinstance(value, dict):
            return {key: self._field(str(key), item) for key, item in value.items()}
        return [self.walk(item) for item in value] if isinstance(value, list) else value

    def _field(self, key: str, value: Any) -> Any:
        if _ID_FIELD.search(key):
            return self._ids(key, value)
        if key in (_PLACED, _BIASED) and isinstance(value, list):
            at = 1 if key == _PLACED else 0
            return [
                [self._ids(key, part) if place == at else part for place, part in enumerate(pair)]
                if isinstance(pair, list)
                else pair
                for pair in value
            ]
        return self.walk(value)

    def _ids(self, key: str, value: Any) -> Any:
        if isinstance(value, list):
            return [self._ids(key, item) for item in value]
        if type(value) is not int:
            return value
        if value in self.removed:
            raise CheckpointError(
                f"`{key}` in `{self.name}` is {value:,}, a token that the new tokenizer does not have",
                hint="protect that token when you prune: --protect",
            )
        return self.moved.get(value, value)  # what was no token before, such as -1, is none after


def named_ids(config: Any) -> set[int]:
    """Every token id that a config names, in the fields that `renumber_config` rewrites."""
    names = _Names()
    names.walk(config)
    return names.found


class _Names(_Renumbering):
    """Collects ids where the other rewrites them."""

    def __init__(self) -> None:
        self.found: set[int] = set()

    def _ids(self, key: str, value: Any) -> Any:
        for item in value if isinstance(value, list) else [value]:
            if isinstance(item, list):
                self._ids(key, item)
            elif type(item) is int:
                self.found.add(item)
        return value
