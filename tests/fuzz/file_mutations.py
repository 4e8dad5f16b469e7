"""Mutations of files with a structure of their own: safetensors, Parquet, lines, compressed files; and which to use."""

import base64
import gzip
import io
import json
from collections.abc import Callable
from contextlib import suppress
from random import Random

from fuzz.byte_mutations import mutate_bytes
from fuzz.json_mutations import mutate_json
from fuzz.wire_mutations import mutate_wire, parse

BYTES_SHARE = 0.2
"""The share of cases in which a file is mutated as bytes, whatever its format."""
LINES = (
    b"",
    b" ",
    b"\0",
    b"\xff\xfe",
    b"\xef\xbb\xbf",
    b"\r",
    b"{}",
    b"[]",
    b"null",
    b'{"text": 1}',
    b'{"text": null}',
)
LINES += (b'{"text": "a"} x', b'{"text": "\\ud800"}', b'{"text": "a", "text": "b"}', b'"text"', b"= 0", b"YQ== -1")
LINES += (
    b"YQ== 99999999999",
    b"YWI= 5",
    b"YQ",
    b"a b c",
    b"x" * 70_000,
    b"[" * 3000,
    b'{"text": "' + b"y" * 9000 + b'"}',
)

Mutation = Callable[[bytes, Random, list[bytes]], bytes]


def mutate_safetensors(raw: bytes, random: Random, donors: list[bytes]) -> bytes:
    """A safetensors file with another header, or a header of another length."""
    size = int.from_bytes(raw[:8], "little")
    header, data = raw[8 : 8 + size], raw[8 + size :]
    others = [other[8 : 8 + int.from_bytes(other[:8], "little")] for other in donors]
    header = _changed_tensor(header, random) if random.random() < 0.6 else mutate_json(header, random, others)
    stated = len(header) if random.random() < 0.92 else random.choice((0, 1, 2**32, 2**63, 2**64 - 1, len(header) - 1))
    data = data if random.random() < 0.9 else mutate_bytes(data, random, [])
    return stated.to_bytes(8, "little") + header + data


def _changed_tensor(header: bytes, random: Random) -> bytes:
    """Offsets, type or shape of one tensor."""
    tensors = json.loads(header)
    info = tensors[random.choice([name for name in tensors if name != "__metadata__"])]
    start, end = info["data_offsets"]
    step = random.choice((1, 2, 16, 32, end - start))
    shape = info["shape"]
    changes = {
        "data_offsets": ([start + step, end + step], [start - step, end], [start, end - step], [end, start], [start]),
        "shape": ([*shape, 1], shape[1:], shape[::-1], [2**32, 2**32], [0, *shape], [-1], [2**63, 2], [1.0], [True]),
        "dtype": ("F32", "F16", "BF16", "F64", "I8", "BOOL", "F8_E4M3", "F4", "bf16", ""),
    }
    field = random.choice(sorted(changes))
    info[field] = random.choice(changes[field])
    return json.dumps(tensors).encode()


def mutate_parquet(raw: bytes, random: Random, donors: list[bytes]) -> bytes:
    """A Parquet file with other types, rows, columns or metadata; half of the time as bytes."""
    if random.random() < 0.5:
        return mutate_bytes(raw, random, donors)
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pq.read_table(io.BytesIO(raw))
    for _ in range(random.choice((1, 1, 2))):
        with suppress(pa.ArrowException, ValueError, TypeError, OverflowError):
            table = _changed_table(table, random)
    stream = io.BytesIO()
    compression = random.choice(("snappy", "zstd", "gzip", "none"))
    pq.write_table(table, stream, row_group_size=random.choice((1, 7, 1000)), compression=compression)
    return stream.getvalue()


def _changed_table(table: "object", random: Random) -> "object":
    import pyarrow as pa

    name = random.choice(table.column_names)
    place = table.column_names.index(name)
    column = table.column(place)
    kind = random.randrange(8)
    if kind == 0:
        types = (
            pa.string(),
            pa.large_binary(),
            pa.int8(),
            pa.uint64(),
            pa.float64(),
            pa.bool_(),
            pa.int64(),
            pa.null(),
        )
        return table.set_column(place, name, column.cast(random.choice(types)))
    if kind == 1:
        values = column.to_pylist()
        values[random.randrange(len(values))] = None
        return table.set_column(place, name, pa.array(values, type=column.type))
    if kind == 2:
        return table.remove_column(place)
    if kind == 3:
        return table.rename_columns(
            [random.choice((name, "text", "count", "pretoken", "")) for name in table.column_names]
        )
    if kind == 4:
        return table.append_column(random.choice((name, "more")), column)
    if kind == 5:
        return table.take(
            pa.array([random.randrange(len(table)) for _ in range(random.randrange(len(table) + 9))], pa.int64())
        )
    if kind == 6:
        values = column.to_pylist()
        values[random.randrange(len(values))] = random.choice((-1, 0, 2**63 - 1, 2**40, "", b"", b"\xff", "x" * 300))
        return table.set_column(place, name, pa.array(values, type=column.type))
    metadata = dict(table.schema.metadata or {b"tokengraft": b"{}"})
    key = random.choice(sorted(metadata))
    return table.replace_schema_metadata(metadata | {key: mutate_json(metadata[key], random, [])})


def mutate_lines(raw: bytes, random: Random, donors: list[bytes]) -> bytes:
    """A file of lines with other lines, or one line of it changed inside."""
    lines = raw.split(b"\n")
    others = random.choice(donors).split(b"\n") if donors else lines
    for _ in range(random.choice((1, 1, 2, 4))):
        at = random.randrange(len(lines))
        line = random.choice((random.choice(LINES), random.choice(others), *[_changed_line(lines[at], random)] * 3))
        keep = random.choice((0, 1, 1, 1))
        lines = [*lines[:at], *[line] * random.choice((0, 1, 1, 1, 1, 1, 2, 9)), *lines[at + keep :]]
        lines = lines or [b""]
    return random.choice((*[b"\n"] * 8, b"\r\n", b"\r")).join(lines)


def _changed_line(line: bytes, random: Random) -> bytes:
    """A line of JSON as a tree, a line of a rank file as token and rank, another one as bytes."""
    try:
        if line.startswith(b"{"):
            return mutate_json(line, random, [])
        token, rank = line.split()
        data = mutate_bytes(base64.b64decode(token, validate=True), random, [])
        number = int(rank) if random.random() < 0.5 else random.choice((0, 1, -1, 2**32, 2**31, int(rank) + 1))
        return base64.b64encode(data) + b" %d" % number
    except ValueError:
        return mutate_bytes(line, random, [])


def mutate_gzip(raw: bytes, random: Random, donors: list[bytes]) -> bytes:
    """A compressed file with other content, several members, or damage."""
    kind = random.randrange(4)
    if kind == 0:
        return mutate_bytes(raw, random, donors)
    if kind == 1:
        return raw + random.choice((raw, b"\0" * 9, b"x", gzip.compress(b"", mtime=0)))
    return gzip.compress(mutate_lines(gzip.decompress(raw), random, []), mtime=0)


def mutate_zstd(raw: bytes, random: Random, donors: list[bytes]) -> bytes:
    """A compressed file with other content, several frames, or damage."""
    import pyarrow as pa

    kind = random.randrange(4)
    if kind == 0:
        return mutate_bytes(raw, random, donors)
    if kind == 1:
        return raw + random.choice((raw, b"\0" * 9, b"x", b"\x50\x2a\x4d\x18\x04\0\0\0abcd"))
    text = pa.CompressedInputStream(pa.BufferReader(raw), "zstd").read()
    return zstd(mutate_lines(text, random, []))


def zstd(text: bytes) -> bytes:
    """Text as one frame."""
    import pyarrow as pa

    stream = pa.BufferOutputStream()
    with pa.CompressedOutputStream(stream, "zstd") as compressed:
        compressed.write(text)
    return bytes(stream.getvalue())


def mutate_gguf(raw: bytes, random: Random, donors: list[bytes]) -> bytes:
    """A GGUF file with other numbers in its header; half of the time as bytes, of which most are in the header too."""
    head = min(len(raw), random.choice((64, 600, 20_000)))
    if random.random() < 0.4:
        return mutate_bytes(raw[:head], random, donors) + raw[head:]
    at = random.randrange(max(head - 8, 1))
    at -= at % random.choice((1, 4, 8))
    size = random.choice((4, 4, 8))
    number = random.choice((0, 1, 2, 5, 8, 9, 12, 13, 255, 2**31, 2**32 - 1, 2**62, 2**63, 2**64 - 1)) % 2 ** (8 * size)
    return raw[:at] + number.to_bytes(size, "little") + raw[at + size :]


_BY_SUFFIX: dict[str, Mutation] = {
    ".json": mutate_json,
    ".model": mutate_wire,
    ".safetensors": mutate_safetensors,
    ".parquet": mutate_parquet,
    ".gz": mutate_gzip,
    ".zst": mutate_zstd,
    ".gguf": mutate_gguf,
}


def mutate_file(name: str, raw: bytes, random: Random, donors: list[bytes]) -> bytes:
    """A file with some changes, by the format that its name and content say."""
    suffix = "." + name.rpartition(".")[2]
    mutation = _BY_SUFFIX.get(suffix, mutate_lines)
    if suffix == ".model" and not raw.startswith(b"\n"):
        mutation = mutate_lines  # a tiktoken file
    if random.random() < BYTES_SHARE:
        mutation = mutate_bytes
    return mutation(raw, random, donors)


def is_well_formed(name: str, raw: bytes) -> bool:
    """Whether another reader can parse the file at all. What is refused although it can be is refused late."""
    try:
        if name.endswith(".json"):
            json.loads(raw)
        elif name.endswith(".safetensors"):
            json.loads(raw[8 : 8 + int.from_bytes(raw[:8], "little")])
        elif name.endswith(".parquet"):
            import pyarrow.parquet as pq

            pq.ParquetFile(io.BytesIO(raw)).read()
        elif name.endswith(".gguf"):
            return raw[:4] == b"GGUF" and raw[4:8] == b"\x03\0\0\0"
        elif name.endswith(".gz"):
            gzip.decompress(raw)
        elif name.endswith(".model") and raw.startswith(b"\n"):
            parse(raw)
    except Exception:  # any failure of any reader means the same
        return False
    return True
