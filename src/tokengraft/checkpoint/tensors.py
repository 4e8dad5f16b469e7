"""`Tensor`: a tensor in a file or in memory, read by rows, as bytes or numbers; and how files of tensors are written.

All models are tensors to the rest of the package: those of safetensors files (`TensorFile`), of GGUF files, of adapters
and of models in memory. The `safetensors` package reads and writes complete tensors, and its numpy interface has no
bf16. Rows of Q8_0, a type of ggml, are blocks of 32 numbers as 8-bit integers, with a 16-bit scale before them.

A new file is a sequence of parts (`write_parts`): bytes, and extents of other files. It is written block by block, and
every block is read back at once: its bytes are still in the cache of the core, and no file is read a second time.
"""

import json
import sys
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import CancelledError
from dataclasses import dataclass, field, replace
from itertools import chain
from math import prod
from operator import eq, itemgetter
from pathlib import Path
from threading import Event
from types import MappingProxyType
from typing import Any, BinaryIO, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from tokengraft.errors import CheckpointError

ITEM_BYTES = {"BF16": 2, "F16": 2, "F32": 4}
"""Bytes per number, by data type. Tables of other types are refused."""
_EXPONENTS = {"BF16": ("<u2", 0x7F80), "F16": ("<u2", 0x7C00), "F32": ("<u4", 0x7F800000)}
"""Numbers as bits, and the bits that are all set in infinities and NaN."""
Q8_0, Q8_BLOCK, Q8_BLOCK_BYTES = "Q8_0", 32, 34
LONG_RUN = 256
"""Runs of at least this many consecutive rows are copied by the kernel."""
MAX_HEADER = 100_000_000  # what the safetensors library accepts
Rows = npt.NDArray[np.float32]
Raw = npt.NDArray[np.uint8]
Ids = npt.NDArray[np.int64]


class Extent(NamedTuple):
    """A range of bytes of a file."""

    path: Path
    start: int
    size: int

    def pieces(self) -> "Iterator[Extent]":
        """Its parts of at most `PIECE` bytes."""
        places = range(self.start, self.start + self.size, PIECE)
        return (Extent(self.path, at, min(PIECE, self.start + self.size - at)) for at in places)

    def blocks(self) -> Iterator[bytearray]:
        """Its bytes, in blocks of `BUFFER`. A block is valid until the next one is asked for."""
        block = bytearray(min(self.size, BUFFER))
        with self.path.open("rb", buffering=0) as stream:
            stream.seek(self.start)
            for at in range(0, self.size, BUFFER):
                block = block if self.size - at >= BUFFER else bytearray(self.size - at)
                read_into(stream, memoryview(block))
                yield block

    def read(self) -> Raw:
        """The bytes."""
        raw = np.empty(self.size, np.uint8)
        with self.path.open("rb", buffering=0) as stream:
            stream.seek(self.start)
            read_into(stream, raw)
        return raw


Part = Extent | Raw | bytes
"""A part of a new file."""


@dataclass(frozen=True)
class Tensor:
    """The name, type, shape and place of a tensor."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    start: int
    """From the beginning of the file."""
    size: int
    """In bytes."""
    path: Path = Path()
    """Its file."""
    data: Callable[[], Raw] | None = None
    """Of a tensor in memory, gives its bytes, row by row."""

    @property
    def rows(self) -> int:
        """The length of the first axis; of a bias of the shape [1, n], of the second."""
        return (self.shape[1] if self.is_flat else self.shape[0]) if self.shape else 0

    @property
    def is_flat(self) -> bool:
        """Whether it is a bias with a first axis of 1."""
        return len(self.shape) == 2 and self.shape[0] == 1 and self.name.endswith("bias")

    @property
    def row_bytes(self) -> int:
        """Bytes of one of the `rows`."""
        return self.size // self.rows if self.rows else 0

    @property
    def width(self) -> int:
        """Numbers in a row."""
        if self.dtype == Q8_0:
            return self.row_bytes // Q8_BLOCK_BYTES * Q8_BLOCK
        return self.row_bytes // ITEM_BYTES.get(self.dtype, 2)

    @property
    def extent(self) -> Extent:
        """Where its bytes are."""
        return Extent(self.path, self.start, self.size)

    def numbers(self) -> Rows:
        """All its numbers."""
        return widen(self.extent.read(), self.dtype).reshape(self.shape)

    def with_rows(self, rows: int) -> Self:
        """The tensor with another number of rows."""
        shape = (1, rows) if self.is_flat else (rows, *self.shape[1:])
        return replace(self, shape=shape, size=self.row_bytes * rows)

    def run(self, begin: int, end: int) -> Extent | Raw:
        """Consecutive rows, as a part of a new file."""
        return self.data()[begin:end] if self.data else self.place(begin, end)

    def place(self, begin: int, end: int) -> Extent:
        """Where consecutive rows are."""
        return Extent(self.path, self.start + begin * self.row_bytes, (end - begin) * self.row_bytes)

    def read(self, rows: Ids) -> Raw:
        """The bytes of some rows, in the given order. Consecutive rows are read together."""
        if len(rows) and not 0 <= rows.min() <= rows.max() < self.rows:  # bytes of another tensor
            raise IndexError(f"`{self.name}` has {self.rows} rows, and not {rows.max()}")
        if self.data:
            return self.data()[rows]
        size = self.row_bytes
        block = np.empty((len(rows), size), np.uint8)
        ends = [*(np.flatnonzero(np.diff(rows) != 1) + 1).tolist(), len(rows)]
        places, raw = (self.start + rows * size).tolist(), block.reshape(-1).data
        with self.path.open("rb", buffering=0) as stream:
            for begin, end in zip([0, *ends], ends if len(rows) else [], strict=False):
                stream.seek(places[begin])
                read_into(stream, raw[begin * size : end * size])
        return block


@dataclass(frozen=True)
class TensorFile:
    """The header of a safetensors file."""

    path: Path
    tensors: Mapping[str, Tensor]
    """In the order of their data."""
    metadata: Mapping[str, Any] | None

    @classmethod
    def open(cls, path: Path) -> "TensorFile":
        """Reads the header of a file, and checks it against the size of the file."""
        try:
            size = path.stat().st_size
            with path.open("rb") as stream:
                length = int.from_bytes(stream.read(8), "little")
                if size < 8 or length > min(size - 8, MAX_HEADER):
                    raise ValueError("its header is longer than the file")
                header = json.loads(stream.read(length))
            return cls._parse(path, header, 8 + length, size)
        except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
            raise CheckpointError(
                f"`{path}` is not a complete safetensors file: {error}", hint="download or save the checkpoint again"
            ) from error

    @classmethod
    def _parse(cls, path: Path, header: Any, data: int, size: int) -> "TensorFile":
        if not isinstance(header, dict):
            raise TypeError("its header is not a JSON object")
        json.dumps(header, ensure_ascii=False).encode()  # half of a surrogate pair could not be written again
        metadata = header.pop("__metadata__", None)
        if metadata is not None and not (
            isinstance(metadata, dict) and all(isinstance(text, str) for text in metadata.values())
        ):
            raise TypeError("`__metadata__` does not map strings to strings")
        tensors = [replace(_tensor(name, entry, data, size), path=path) for name, entry in header.items()]
        ordered = sorted(tensors, key=lambda tensor: (tensor.start, tensor.size, tensor.name))
        at = data  # as the library does, refuses data that two tensors share or none has
        for tensor in ordered:
            if tensor.start != at:
                raise ValueError(f"the data of {tensor.name!r} does not begin where the data before it ends")
            at += tensor.size
        if at != size:
            raise ValueError(f"{size - at:,} bytes at its end belong to no tensor")
        return cls(path, MappingProxyType({tensor.name: tensor for tensor in ordered}), metadata)


def _tensor(name: str, entry: dict[str, Any], data: int, size: int) -> Tensor:
    """One entry of a header, whose data starts at ``data`` in a file of ``size`` bytes."""
    begin, end = map(_count, entry["data_offsets"])
    shape, dtype = tuple(map(_count, entry["shape"])), entry["dtype"]
    if not isinstance(dtype, str):
        raise TypeError(f"the tensor {name!r} has the type {dtype!r}")
    item = ITEM_BYTES.get(dtype)
    if not begin <= end <= size - data or (item and prod(shape) * item != end - begin):
        raise ValueError(f"the tensor {name!r} is not inside the file")
    return Tensor(name, dtype, shape, data + begin, end - begin)


def _count(value: Any) -> int:
    if type(value) is not int or not 0 <= value < 1 << 63:
        raise ValueError(f"{value!r} is neither a size nor an offset")
    return value


def header_bytes(tensors: Iterable[Tensor], metadata: Mapping[str, Any] | None) -> bytes:
    """The header of a file with these tensors in this order."""
    header: dict[str, Any] = {"__metadata__": dict(metadata)} if metadata is not None else {}
    at = 0
    for tensor in tensors:
        place = [at, at + tensor.size]
        header[tensor.name] = {"dtype": tensor.dtype, "shape": list(tensor.shape), "data_offsets": place}
        at += tensor.size
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)  # data is aligned, as the library writes it
    return len(text).to_bytes(8, "little") + text


def long_runs(copies: Ids) -> list[tuple[int, int]]:
    """Ranges of new rows that are copies of at least `LONG_RUN` consecutive old rows."""
    continues = (copies[1:] == copies[:-1] + 1) & (copies[:-1] >= 0)
    breaks = [int(at) + 1 for at in np.flatnonzero(~continues)]
    runs = zip([0, *breaks], [*breaks, len(copies)], strict=True)
    return [(start, end) for start, end in runs if end - start >= LONG_RUN and copies[start] >= 0]


def widen(raw: Raw, dtype: str) -> Rows:
    """Rows as 32-bit floats. Exact for every type in `ITEM_BYTES`, and for Q8_0 of GGUF.

    >>> widen(np.array([[0x80, 0x3F]], np.uint8), "BF16")
    array([[1.]], dtype=float32)
    """
    contiguous = np.ascontiguousarray(raw)
    if dtype == Q8_0:
        return np.asarray(_q8_0().dequantize(contiguous), np.float32)
    if dtype == "BF16":
        bits = contiguous.view("<u2").astype(np.uint32)
        bits <<= 16
        return bits.view(np.float32)
    return contiguous.view("<f2" if dtype == "F16" else "<f4").astype(np.float32)


def all_finite(raw: Raw, dtype: str) -> bool:
    """Whether rows hold neither infinities nor NaN.

    >>> all_finite(np.array([[0x80, 0x3F]], np.uint8), "BF16"), all_finite(np.array([[0x80, 0x7F]], np.uint8), "BF16")
    (True, False)
    """
    if not raw.size:
        return True
    if dtype == Q8_0:  # it is finite if the scales of all blocks are
        raw, dtype = np.ascontiguousarray(raw).reshape(-1, Q8_BLOCK_BYTES)[:, :2], "F16"
    bits, exponent = _EXPONENTS[dtype]
    return not ((np.ascontiguousarray(raw).view(bits) & exponent) == exponent).any()


def narrow(rows: Rows, dtype: str) -> Raw:
    """Rows in the given type, rounded to the nearest value, ties to even.

    >>> narrow(np.array([[1.0]], np.float32), "BF16")
    array([[128,  63]], dtype=uint8)
    """
    plain = np.ascontiguousarray(rows, dtype="<f4")
    if dtype == Q8_0:
        return np.asarray(_q8_0().quantize(plain), np.uint8)
    if dtype == "BF16":
        bits = plain.view("<u4")
        # subtle: adding half of the removed bits, less one if the last kept bit is even, rounds ties to even. A NaN
        # must not be rounded up to infinity.
        half = bits >> 16
        half &= 1
        half += 0x7FFF
        half += bits
        half >>= 16
        rounded = half.astype("<u2")
        if np.isnan(plain.max(initial=0.0)):
            rounded[np.isnan(plain)] = 0x7FC0
        return rounded.view(np.uint8)
    return plain.astype("<f2" if dtype == "F16" else "<f4").view(np.uint8)


def _q8_0() -> Any:
    """The type Q8_0 of the `gguf` package, which rounds to the bit as ggml does."""
    from gguf.quants import Q8_0

    return Q8_0


PIECE = 1 << 26
"""Bytes that are compared in one step: an interrupted run stops after this many."""
BUFFER = 1 << 18
"""Bytes that are copied or compared at a time: both buffers of a comparison fit into the cache of a core."""


@dataclass(frozen=True)
class ReadBack:
    """The extents of other files in a new file, which was equal to them when it was read back."""

    extents: list[tuple[int, Extent]] = field(default_factory=list)
    """With their places in the new file, in ascending order."""

    def has(self, old: Extent, new: Extent) -> bool:
        """Whether one extent was copied to the other."""
        after = bisect_right(self.extents, new.start, key=itemgetter(0))
        for place, (path, start, size) in self.extents[max(after - 1, 0) : after]:
            inside, moved_alike = new.start + new.size <= place + size, start - place == old.start - new.start
            return inside and moved_alike and (path, old.size) == (old.path, new.size)
        return False


NOTHING = ReadBack()


def write_parts(out: Path, parts: Iterable[Part], stop: Event | None = None) -> ReadBack:
    """Writes a file, until ``stop`` is set. Every block is read back and compared with what was to be written."""
    extents, at, again = list[tuple[int, Extent]](), 0, bytearray()
    # A damaged checkpoint may have rows that are not finite, and numpy would warn of each.
    with np.errstate(all="ignore"), out.open("wb") as new, out.open("rb", buffering=0) as written:
        for part in parts:
            if isinstance(part, Extent):
                extents.append((at, part))
            for block in _blocks(part):
                raise_if(stop)
                new.write(block)
                new.flush()
                again = again if len(again) == len(block) else bytearray(len(block))
                read_into(written, memoryview(again))
                if again != block:
                    raise damage(f"the file `{out.name}` differs from what was written, after its first {at:,} bytes")
                at += len(block)
    return ReadBack(extents)


def _blocks(part: Part) -> Iterable[bytes | bytearray | memoryview]:
    if isinstance(part, Extent):
        return part.blocks()
    return [part if isinstance(part, bytes) else part.ravel().data]


def damage(what: str) -> CheckpointError:
    """The error for a written file that is not what it should be: there is a bug, or the disk fails."""
    return CheckpointError(f"after writing, {what}", hint="check the disk and try again; please report this")


def write_tensors(
    out: Path,
    tensors: Iterable[tuple[Tensor, Iterable[Part]]],
    metadata: Mapping[str, Any] | None,
    stop: Event | None = None,
) -> ReadBack:
    """Writes a safetensors file: in this order tensors, whose places are not used, of these parts."""
    pairs = [*tensors]
    header = header_bytes((tensor for tensor, _ in pairs), metadata)
    return write_parts(out, chain([header], *(parts for _, parts in pairs)), stop)


FICLONE = 0x40049409
"""The request of Linux that makes a file share the blocks of another."""


def clone(source: Path, out: Path) -> bool:
    """Copies a file without using space, if the file system can share blocks between files."""
    if sys.platform != "linux":
        return False
    import fcntl

    with source.open("rb") as old, out.open("wb") as new:
        try:
            fcntl.ioctl(new, FICLONE, old.fileno())
        except OSError:
            return False
    return True


def raise_if(stop: Event | None) -> None:
    """Ends the work of a thread after another one failed."""
    if stop and stop.is_set():
        raise CancelledError


def equal_bytes(first: Extent, second: Extent) -> bool:
    """Whether two extents hold the same bytes. A file that ends before its extent does is an error."""
    return first.size == second.size and all(map(eq, first.blocks(), second.blocks()))


def same_bytes(first: Tensor, second: Tensor) -> bool:
    """Whether two tensors have the same bytes."""
    if first.data and second.data:
        return np.array_equal(first.data(), second.data())
    return equal_bytes(first.extent, second.extent)


def read_into(stream: BinaryIO, buffer: npt.NDArray[np.uint8] | memoryview) -> None:
    """Fills a buffer of one dimension from the current position of a file."""
    at = 0
    while at < len(buffer):
        done = stream.readinto(buffer[at:])  # type: ignore[attr-defined]
        if not done:
            raise OSError(f"`{stream.name}` is shorter than its header says")
        at += done
