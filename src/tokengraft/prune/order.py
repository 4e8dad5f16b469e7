"""`PruneOrder`: tokens in the order in which they go. Plain data; cut it anywhere, apply it, save it."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from tokengraft.artefact import read_artefact, write_artefact
from tokengraft.edit import remove_tokens
from tokengraft.errors import OptionError
from tokengraft.tokenizer import Tokenizer


class Removal(NamedTuple):
    """A token that goes, and why now."""

    token: str
    id: int
    decided_by: int
    """The count, or the id, that put it in its place."""


@dataclass(frozen=True)
class PruneOrder:
    """Which tokens go, first to last. The order of n tokens is the beginning of the order of more.

    Example:
        >>> order = prune_order(tok, counts)  # doctest: +SKIP
        >>> small = order[:16_000].apply(tok)  # doctest: +SKIP
    """

    method: str
    removals: tuple[Removal, ...]
    kept: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    """How many tokens never go, for which reason."""
    provenance: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))

    @property
    def tokens(self) -> tuple[str, ...]:
        """The tokens, as the vocabulary spells them."""
        return tuple(removal.token for removal in self.removals)

    def __len__(self) -> int:
        return len(self.removals)

    def __getitem__(self, cut: slice) -> "PruneOrder":
        """The first n of the order.

        Raises:
            OptionError: There are not so many, with what stops the others from going.
        """
        whole = isinstance(cut, slice) and cut.start in (None, 0) and cut.step in (None, 1)
        if not whole or not isinstance(cut.stop, int | None) or (cut.stop or 0) < 0:
            raise OptionError(f"an order can only be cut as [:n], not [{cut}]", hint="write order[:4000]")
        if cut.stop is not None and cut.stop > len(self):
            raise OptionError(
                f"{cut.stop:,} tokens were asked to go, {len(self):,} can by `{self.method}`; {self.stops()}",
                hint=f"ask for at most {len(self):,}, protect less, or take another method",
            )
        return replace(self, removals=self.removals[: cut.stop])

    def stops(self) -> str:
        """What keeps the other tokens, in words."""
        reasons = [f"{count:,} {reason}" for reason, count in self.kept.items() if count]
        return "of the others stay " + ", ".join(reasons) if reasons else "there are no others"

    def apply(self, tokenizer: Tokenizer) -> Tokenizer:
        """The tokenizer without these tokens. Kept ids do not move; `Tokenizer.compact` closes the holes.

        Raises:
            InvalidTokenizerError: It is not the tokenizer that the order was made for.
        """
        return remove_tokens(tokenizer, self.tokens)

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (self.method, self.removals, dict(self.kept), dict(self.provenance))

    def save(self, out: str | os.PathLike[str], *, force: bool = False) -> Path:
        """Writes the order as JSON and returns the path.

        Raises:
            OutputError: The file exists or cannot be written.
        """
        document = {
            "method": self.method,
            "kept": dict(self.kept),
            "provenance": dict(self.provenance),
            "removals": self.removals,
        }
        return write_artefact(document, out, force=force)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> "PruneOrder":
        """The order in a file.

        Raises:
            CountsError: It is not a file of an order.
        """
        return read_artefact(path, _parse, what="a prune order", command="tokengraft prune --order FILE")


def _parse(document: Any) -> PruneOrder:
    removals = tuple(_removal(*removal) for removal in document["removals"])
    kept = {str(reason): int(count) for reason, count in document["kept"].items()}
    return _rebuild(str(document["method"]), removals, kept, dict(document["provenance"]))


def _removal(token: str, token_id: int, decided_by: int) -> Removal:
    """A removal out of a file, if it is one."""
    if not (isinstance(token, str) and isinstance(token_id, int) and isinstance(decided_by, int)):
        raise TypeError(f"{(token, token_id, decided_by)!r} is no removal")
    return Removal(token, token_id, decided_by)


def _rebuild(
    method: str, removals: tuple[Removal, ...], kept: dict[str, int], provenance: dict[str, Any]
) -> PruneOrder:
    return PruneOrder(method, removals, MappingProxyType(kept), MappingProxyType(provenance))
