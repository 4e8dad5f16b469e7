"""`PruneOrder`: tokens in the order of their removal. It can be cut, applied, saved and loaded."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from tokengraft.arguments import checked
from tokengraft.errors import OptionError
from tokengraft.frozen import FrozenDict
from tokengraft.representation import Table, shown
from tokengraft.tokenizer.edit import remove_tokens
from tokengraft.tokenizer.edit_result import EditResult
from tokengraft.tokenizer.tokenizer import Tokenizer


@shown
class Removal(NamedTuple):
    """A token to remove, and the number that decided its position in the order."""

    token: str
    id: int
    decided_by: int
    """The count or the id that the order is sorted by."""


@shown
@checked
@dataclass(frozen=True)
class PruneOrder(EditResult):
    """Which tokens to remove, first to last. The order of n tokens is the beginning of the order of more.

    Examples:
        >>> tok = tg.load("model")
        >>> order = tg.prune_order(tok, tg.count(tok, "en.txt"))
        >>> [(removal.token, removal.id) for removal in order.removals[-2:]]
        [('th', 257), ('at', 256)]
        >>> len(tok.tokens) - len(order[:16].apply(tok).tokens)
        16
    """

    _what = "a prune order"
    _command = "tokengraft prune --order FILE"
    method: str
    removals: tuple[Removal, ...]
    base_hash: str
    """The `Tokenizer.content_hash` of the tokenizer it was made for; `apply` refuses any other."""
    kept: Mapping[str, int] = field(default_factory=FrozenDict)
    """How many tokens are never removed, by reason."""
    provenance: Mapping[str, Any] = field(default_factory=FrozenDict)
    """Version, totals of the counted text, and whether tokens were counted by merges alone (`by_merges`)."""

    @property
    def tokens(self) -> tuple[str, ...]:
        """The tokens, as the vocabulary spells them."""
        return tuple(removal.token for removal in self.removals)

    def __len__(self) -> int:
        return len(self.removals)

    def stops(self) -> str:
        """A message: why the other tokens are kept."""
        reasons = [f"{count:,} {reason}" for reason, count in self.kept.items() if count]
        return "kept are " + ", ".join(reasons) if reasons else "there are no others"

    def _first(self, n: int) -> "PruneOrder":
        if n < 0:
            raise self._cannot_cut(slice(n))
        if n > len(self):
            raise OptionError(
                f"{n:,} tokens are to be removed, `{self.method}` can remove {len(self):,}; {self.stops()}",
                hint=f"pass --remove {len(self)} or less, protect fewer tokens, or choose another --method",
            )
        return replace(self, removals=self.removals[:n])

    def _facts(self) -> dict[str, Any]:
        return {"method": self.method, "tokens": len(self), "others": self.stops(), "base": self.base_hash[:12]}

    def _tables(self) -> Iterator[Table]:
        yield Table("tokens, first removed first", ("token", "id", "decided by"), self.removals, len(self))

    def _edited(self, tokenizer: Tokenizer) -> Tokenizer:
        return remove_tokens(tokenizer, self.tokens)

    def _document(self) -> dict[str, Any]:
        return {
            "method": self.method,
            "base_hash": self.base_hash,
            "kept": self.kept,
            "provenance": self.provenance,
            "removals": self.removals,
        }

    @classmethod
    def _parsed(cls, document: Any, base_hash: str) -> "PruneOrder":
        return cls(
            method=str(document["method"]),
            removals=tuple(_removal(*removal) for removal in document["removals"]),
            base_hash=base_hash,
            kept=FrozenDict({str(reason): int(count) for reason, count in document["kept"].items()}),
            provenance=FrozenDict(document["provenance"]),
        )


def _removal(token: str, token_id: int, decided_by: int) -> Removal:
    """A removal out of a file, if it is one."""
    if not (isinstance(token, str) and isinstance(token_id, int) and isinstance(decided_by, int)):
        raise TypeError(f"{(token, token_id, decided_by)!r} is no removal")
    return Removal(token, token_id, decided_by)
