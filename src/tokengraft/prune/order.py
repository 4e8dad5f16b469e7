"""`PruneOrder`: tokens in the order of their removal. Plain data; cut it anywhere, apply it, save it."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

from tokengraft.errors import OptionError
from tokengraft.frozen import FrozenDict
from tokengraft.output.result_file import as_hash, read_result, write_result_file
from tokengraft.tokenizer.edit import remove_tokens, require_base
from tokengraft.tokenizer.tokenizer import Tokenizer


class Removal(NamedTuple):
    """A token to remove, and what decided its place."""

    token: str
    id: int
    decided_by: int
    """The count, or the id, that put it in its place."""


@dataclass(frozen=True)
class PruneOrder:
    """Which tokens to remove, first to last. The order of n tokens is the beginning of the order of more.

    Examples:
        >>> order = prune_order(tok, counts)  # doctest: +SKIP
        >>> small = order[:16_000].apply(tok)  # doctest: +SKIP
    """

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

    def __getitem__(self, cut: slice) -> "PruneOrder":
        """The first n of the order.

        Raises:
            OptionError: There are fewer, with the reasons that keep the others.
        """
        whole = isinstance(cut, slice) and cut.start in (None, 0) and cut.step in (None, 1)
        if not whole or not isinstance(cut.stop, int | None) or (cut.stop or 0) < 0:
            raise OptionError(f"an order can only be cut as [:n], not [{cut}]", hint="write order[:4000]")
        if cut.stop is not None and cut.stop > len(self):
            raise OptionError(
                f"{cut.stop:,} tokens are to be removed, `{self.method}` can remove {len(self):,}; {self.stops()}",
                hint=f"pass --remove {len(self)} or less, protect fewer tokens, or choose another --method",
            )
        return replace(self, removals=self.removals[: cut.stop])

    def stops(self) -> str:
        """Why the other tokens are kept, in words."""
        reasons = [f"{count:,} {reason}" for reason, count in self.kept.items() if count]
        return "kept are " + ", ".join(reasons) if reasons else "there are no others"

    def apply(self, tokenizer: Tokenizer) -> Tokenizer:
        """The tokenizer without these tokens. Kept ids do not move; `Tokenizer.compact` closes the holes.

        Raises:
            InvalidTokenizerError: It is not the tokenizer that the order was made for.
        """
        require_base(tokenizer, self.base_hash, what="prune order")
        return remove_tokens(tokenizer, self.tokens)

    def save(self, out: str | os.PathLike[str], *, force: bool = False) -> Path:
        """Writes the order as JSON and returns the path.

        Raises:
            OutputError: The file exists or cannot be written.
        """
        document = {
            "method": self.method,
            "base_hash": self.base_hash,
            "kept": dict(self.kept),
            "provenance": dict(self.provenance),
            "removals": self.removals,
        }
        return write_result_file(document, out, force=force)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> "PruneOrder":
        """The order in a file.

        Raises:
            CountsError: It is not a file of an order.
        """
        return read_result(path, _parse, what="a prune order", command="tokengraft prune --order FILE")


def _parse(document: Any) -> PruneOrder:
    removals = tuple(_removal(*removal) for removal in document["removals"])
    kept = FrozenDict({str(reason): int(count) for reason, count in document["kept"].items()})
    base_hash = as_hash(document["base_hash"])
    return PruneOrder(str(document["method"]), removals, base_hash, kept, FrozenDict(document["provenance"]))


def _removal(token: str, token_id: int, decided_by: int) -> Removal:
    """A removal out of a file, if it is one."""
    if not (isinstance(token, str) and isinstance(token_id, int) and isinstance(decided_by, int)):
        raise TypeError(f"{(token, token_id, decided_by)!r} is no removal")
    return Removal(token, token_id, decided_by)
