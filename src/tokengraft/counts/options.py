"""`CountOptions` and `HoldOut`: how to count a corpus, and what to hold out of it."""

from dataclasses import dataclass
from typing import Literal, get_args

from tokengraft.arguments import checked
from tokengraft.errors import OptionError, require_positive
from tokengraft.representation import shown

DEFAULT_MEMORY = 4 << 30
Engine = Literal["local", "ray"]


@shown
@checked
@dataclass(frozen=True)
class CountOptions:
    """Threads, memory and limits for counting. Only the limits change the result."""

    workers: int | None = None
    """Threads; by default one for each core. On Ray: tasks at once; by default as many as fit."""
    memory: int = DEFAULT_MEMORY
    """Bytes, on Ray for each task: half for tables of pretokens, which are written to disk beyond it, and half for the
    documents in process. A document that cannot be cut and needs more than that half is refused, unless it is shorter
    than two megabytes. It needs up to 10 times its size, 30 times if spaces become ``▁``, and 80 times if its pipeline
    runs through the `tokenizers` crate, which `inspect` tells. Such a pipeline never cuts a document."""
    max_documents: int | None = None
    max_bytes: int | None = None
    """Bytes of text. With a limit, blocks are counted one after the other."""
    min_count: int = 1
    """Leave out pretokens that occur less often in the complete corpus."""
    through_upstream: bool = False
    """Use the `tokenizers` crate instead of a faster engine, to compare the two."""
    engine: Engine = "local"
    """Where to count: in threads of this process, or on Ray. The result is the same."""
    address: str | None = None
    """The Ray cluster: ``auto``, or the address of its head node. By default the one that the program is connected to,
    or one that is started on this machine and stopped at the end."""

    def __post_init__(self) -> None:
        for name in ("workers", "memory", "max_documents", "max_bytes", "min_count"):
            require_positive(name, getattr(self, name))
        if self.engine not in get_args(Engine):
            raise OptionError(f"there is no engine {self.engine!r}", hint="pass local or ray")
        if self.address is not None and self.engine != "ray":
            raise OptionError(
                f"the address {self.address!r} is for Ray, and the engine is {self.engine}",
                hint="pass --engine ray too",
            )


@shown
@checked
@dataclass(frozen=True)
class HoldOut:
    """Which documents are held out of counting.

    A whole document is eligible if it is not blank, has at most ``max_bytes // 8`` bytes, and its hash is a multiple of
    ``one_in``. The distinct eligible documents with the smallest hashes are held out, as many as fit into
    ``max_bytes``. The choice depends only on the documents, not on threads, blocks or the order of files.
    """

    one_in: int = 50
    max_bytes: int = 2_000_000

    def __post_init__(self) -> None:
        for name in ("one_in", "max_bytes"):
            value = getattr(self, name)
            if not 1 <= value < 2**63:
                raise OptionError(f"{name} is {value}; it must be at least 1", hint=f"pass HoldOut({name}=1) or more")
