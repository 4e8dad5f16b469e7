"""GGUF files, llama.cpp's format of models: keys with values, then the bytes of every tensor.

Keys are kept as the bytes they were read from, so that unchanged ones are written back exactly. The reader of the
`gguf` package makes an array for every token and needs half a minute for the vocabulary of Qwen-2.5; its writer needs
whole tensors. The package is used for its table of quantisations, and the tests read the results with it.
"""

import struct
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from itertools import pairwise
from math import prod
from mmap import ACCESS_READ, mmap
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from tokengraft.checkpoint.tensors import Tensor, TensorFile
from tokengraft.errors import CheckpointError, OptionError, SourceNotFoundError

MAGIC = b"GGUF"
VERSIONS = (2, 3)
ALIGNMENT = "general.alignment"
STRING, ARRAY = 8, 9
INT32, FLOAT32 = 5, 6
_FORMATS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
"""The formats of values of fixed size, by the number of their type."""
_MOST_DIMENSIONS, _MOST_NESTED = 4, 8


@dataclass(frozen=True)
class GgufKey:
    """A key with its value."""

    name: str
    type: int
    value: Any
    """A number, a bool, the bytes of a string, an array of numpy, or a tuple of bytes or of arrays."""
    raw: bytes
    """The bytes of the value in the file, without name and type."""

    @property
    def item_type(self) -> int | None:
        """The type of the items of an array."""
        return int.from_bytes(self.raw[:4], "little") if self.type == ARRAY else None

    @property
    def text(self) -> str:
        """The value of a string, as text."""
        return self.value.decode(errors="replace") if isinstance(self.value, bytes) else repr(self.value)


@dataclass(frozen=True)
class GgufFile(TensorFile):
    """The keys of a GGUF file, and where its tensors are.

    The first axis of a shape is that of the rows, the last of ggml's dimensions.
    """

    version: int
    keys: Mapping[str, GgufKey]
    """In the order of the file."""
    type_numbers: Mapping[str, int]
    """The number of the type of each tensor, in the order of the file."""

    @classmethod
    def open(cls, path: Path) -> "GgufFile":
        """Reads everything except the data of tensors, and checks it against the size of the file."""
        if not path.exists():
            raise SourceNotFoundError(f"there is no file `{path}`", hint="check the path of the GGUF file")
        block_sizes()
        try:
            with path.open("rb") as stream, mmap(stream.fileno(), 0, access=ACCESS_READ) as data:
                return _parse(path, _Cursor(data))
        except (OSError, ValueError, struct.error, OverflowError, MemoryError) as error:
            raise CheckpointError(
                f"`{path}` is not a complete GGUF file: {error}", hint="download or convert the model again"
            ) from error

    @property
    def alignment(self) -> int:
        """The start of every tensor is a multiple of this."""
        return self.keys[ALIGNMENT].value if ALIGNMENT in self.keys else 32

    def with_changes(self, keys: Mapping[str, GgufKey], rows: Mapping[str, int]) -> "GgufFile":
        """The file with other values of some keys and other numbers of rows of some tensors, placed one by one."""
        resized = {name: t.with_rows(rows[name]) if name in rows else t for name, t in self.tensors.items()}
        changed = replace(self, keys=MappingProxyType({**self.keys, **keys}), tensors=resized)
        at = len(changed.head())
        for name, tensor in resized.items():
            resized[name] = replace(tensor, start=at)
            at = _aligned(at + tensor.size, self.alignment)
        return changed

    def head(self) -> bytes:
        """The bytes before the data of tensors, padding included."""
        parts = [MAGIC, struct.pack("<IQQ", self.version, len(self.tensors), len(self.keys))]
        for key in self.keys.values():
            parts += [_string(key.name.encode()), struct.pack("<I", key.type), key.raw]
        first = min((tensor.start for tensor in self.tensors.values()), default=0)
        for name, number in self.type_numbers.items():
            shape, start = self.tensors[name].shape, self.tensors[name].start
            dimensions = struct.pack(f"<I{len(shape)}Q", len(shape), *reversed(shape))
            parts += [_string(name.encode()), dimensions, struct.pack("<IQ", number, start - first)]
        raw = b"".join(parts)
        return raw.ljust(_aligned(len(raw), self.alignment), b"\0")


def wrong_file(found: str) -> CheckpointError:
    """The error for a file whose content llama.cpp's converter would not write."""
    return CheckpointError(found, hint="convert the model again with a current llama.cpp")


def is_gguf(path: Path) -> bool:
    """Whether a path is that of a GGUF file, by its first bytes; by its name if there is no such file."""
    try:
        if path.is_file():
            with path.open("rb") as stream:
                return stream.read(4) == MAGIC
    except (OSError, ValueError):
        pass
    return path.suffix.lower() == ".gguf" and not path.is_dir()


@cache
def block_sizes() -> Mapping[int, tuple[str, int, int]]:
    """For every number of a type of tensors its name, the numbers in a block, and the bytes of a block."""
    try:
        import gguf
    except ImportError as error:
        raise OptionError(
            "GGUF files need the package `gguf`, which is not installed", hint="pip install 'tokengraft[gguf]'"
        ) from error
    return {int(number): (number.name, *sizes) for number, sizes in gguf.GGML_QUANT_SIZES.items()}


def string_key(name: str, value: bytes) -> GgufKey:
    """A key with a string."""
    return GgufKey(name, STRING, value, _string(value))


def strings_key(name: str, values: list[bytes]) -> GgufKey:
    """A key with an array of strings."""
    return GgufKey(name, ARRAY, tuple(values), struct.pack("<IQ", STRING, len(values)) + b"".join(map(_string, values)))


def numbers_key(name: str, item_type: int, values: Any) -> GgufKey:
    """A key with an array of numbers of a type."""
    array = np.asarray(values, f"<{_FORMATS[item_type]}")
    return GgufKey(name, ARRAY, array, struct.pack("<IQ", item_type, len(array)) + array.tobytes())


def number_key(key: GgufKey, value: int) -> GgufKey:
    """A key with another number of the same type."""
    try:
        return replace(key, value=value, raw=struct.pack(f"<{_FORMATS[key.type]}", value))
    except (struct.error, KeyError) as error:
        raise wrong_file(f"the key `{key.name}` of the type {key.type} cannot hold {value:,}") from error


def _string(value: bytes) -> bytes:
    return struct.pack("<Q", len(value)) + value


def _aligned(at: int, alignment: int) -> int:
    return -(-at // alignment) * alignment


class _Cursor:
    """Reads a file from the beginning; refuses to read beyond its end."""

    def __init__(self, data: mmap) -> None:
        self.data, self.at = data, 0

    @property
    def left(self) -> int:
        """The bytes that were not read yet."""
        return len(self.data) - self.at

    def take(self, size: int) -> bytes:
        """The next bytes."""
        if size > self.left:
            raise ValueError(f"it ends within the {size:,} bytes at {self.at:,}")
        self.at += size
        return self.data[self.at - size : self.at]

    def number(self, form: str) -> Any:
        """The next number of a format of `struct`."""
        return struct.unpack(f"<{form}", self.take(struct.calcsize(f"<{form}")))[0]

    def string(self) -> bytes:
        """The next string."""
        return self.take(self.number("Q"))

    def strings(self, n: int) -> list[bytes]:
        """The next strings. A loop of its own: a vocabulary has hundreds of thousands."""
        found, data, end, at = list[bytes](), self.data, len(self.data), self.at
        length = struct.Struct("<Q").unpack_from
        while len(found) < n and at + 8 <= end and (stop := at + 8 + length(data, at)[0]) <= end:
            found.append(data[at + 8 : stop])
            at = stop
        self.at = at
        return found if len(found) == n else [*found, self.string()]  # which refuses it


def _parse(path: Path, cursor: _Cursor) -> GgufFile:
    if cursor.take(4) != MAGIC:
        raise ValueError("it does not begin with GGUF")
    version = cursor.number("I")
    if version not in VERSIONS:
        other = " and the bytes of numbers in the other order" if version & 0xFFFF == 0 else ""
        raise ValueError(f"it has the version {version}{other}; the versions 2 and 3 are supported")
    n_tensors, n_keys = cursor.number("Q"), cursor.number("Q")
    keys: dict[str, GgufKey] = {}
    for _ in range(n_keys):
        name, key_type = cursor.string().decode(), cursor.number("I")
        if name in keys:
            raise ValueError(f"it has the key `{name}` twice")
        begin, value = cursor.at, _read_value(cursor, key_type, 0)
        keys[name] = GgufKey(name, key_type, value, cursor.data[begin : cursor.at])
    tensors: dict[str, tuple[int, Tensor]] = {}
    for _ in range(n_tensors):
        number, tensor = _read_tensor(cursor)
        if tensor.name in tensors:
            raise ValueError(f"it has the tensor `{tensor.name}` twice")
        tensors[tensor.name] = (number, tensor)
    alignment = keys[ALIGNMENT].value if ALIGNMENT in keys else 32
    if type(alignment) is not int or alignment < 1 or alignment & (alignment - 1) or alignment > 1 << 20:
        raise ValueError(f"`{ALIGNMENT}` is {alignment!r}, not a power of two")
    data, placed = _aligned(cursor.at, alignment), list[Tensor]()
    for name, (_, tensor) in tensors.items():
        if tensor.start % alignment or data + tensor.start + tensor.size > len(cursor.data):
            raise ValueError(f"the tensor `{name}` at {tensor.start:,} is not aligned or not inside the file")
        placed.append(replace(tensor, start=data + tensor.start, path=path))
    placed.sort(key=lambda tensor: (tensor.start, tensor.size, tensor.name))
    for before, after in pairwise(placed):
        if before.start + before.size > after.start:
            raise ValueError(f"the tensors `{before.name}` and `{after.name}` overlap")
    numbers = {name: number for name, (number, _) in tensors.items()}
    by_name = {tensor.name: tensor for tensor in placed}
    return GgufFile(path, MappingProxyType(by_name), None, version, MappingProxyType(keys), MappingProxyType(numbers))


def _read_value(cursor: _Cursor, value_type: int, depth: int) -> Any:
    if value_type == STRING:
        return cursor.string()
    if value_type in _FORMATS:
        return cursor.number(_FORMATS[value_type])
    if value_type != ARRAY or depth == _MOST_NESTED:
        raise ValueError(f"the value before byte {cursor.at:,} has the unknown type {value_type}")
    item_type, n = cursor.number("I"), cursor.number("Q")
    if item_type in _FORMATS:
        items = np.dtype(f"<{_FORMATS[item_type]}")
        return np.frombuffer(cursor.take(n * items.itemsize), items)
    if n * 8 > cursor.left:  # a string or an array has 8 bytes or more
        raise ValueError(f"an array of {n:,} items at {cursor.at:,} reaches beyond its end")
    return tuple(
        cursor.strings(n) if item_type == STRING else [_read_value(cursor, item_type, depth + 1) for _ in range(n)]
    )


def _read_tensor(cursor: _Cursor) -> tuple[int, Tensor]:
    """The number of the type of a tensor, and the tensor with its offset as its start."""
    name = cursor.string().decode()
    n_dimensions = cursor.number("I")
    if not 1 <= n_dimensions <= _MOST_DIMENSIONS:
        raise ValueError(f"the tensor `{name}` has {n_dimensions:,} dimensions")
    dimensions = struct.unpack(f"<{n_dimensions}Q", cursor.take(8 * n_dimensions))
    number, offset = cursor.number("I"), cursor.number("Q")
    if number not in block_sizes():
        raise ValueError(f"the tensor `{name}` has the type {number}, which this version of `gguf` does not know")
    dtype, block, block_bytes = block_sizes()[number]
    if dimensions[0] % block:
        raise ValueError(f"the tensor `{name}` has rows of {dimensions[0]:,}, no multiple of the {block} of {dtype}")
    size = prod(dimensions) // block * block_bytes
    return number, Tensor(name, dtype, tuple(reversed(dimensions)), offset, size)
