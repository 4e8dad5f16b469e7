"""Which inputs a shard reads. All shards must see the same files, of the same sizes."""

from collections.abc import Sequence
from heapq import heapify, heapreplace
from typing import Protocol, TypeVar

PART_BYTES = 64 << 20
"""A smaller file is not divided."""
PARTS_PER_SHARD = 16
"""Files are divided into parts of at least this share of a shard, so that the number of parts does not grow."""


class _Sized(Protocol):
    @property
    def size(self) -> int: ...


_Input = TypeVar("_Input", bound=_Sized)


def shard_of(inputs: Sequence[_Input], shard: tuple[int, int]) -> list[_Input]:
    """The inputs of one shard, in their order. Shards have about the same number of bytes.

    The largest input is assigned first, each to the shard that has the least so far; equal ones in their order.

    Args:
        inputs: All inputs, the same for every shard.
        shard: Number from 0, and number of shards.
    """
    number, n_shards = shard
    loads = [(0, 0, at) for at in range(n_shards)]
    heapify(loads)
    chosen: list[int] = []
    for place in sorted(range(len(inputs)), key=lambda place: -inputs[place].size):
        size, n_inputs, at = loads[0]
        heapreplace(loads, (size + inputs[place].size, n_inputs + 1, at))
        if at == number:
            chosen.append(place)
    return [inputs[place] for place in sorted(chosen)]
