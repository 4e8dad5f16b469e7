"""Golden files: what every writer of the package writes for tiny inputs. A change of a byte is a change of a format.

`python tests/golden/golden_files.py --write` writes them again, after a format was changed on purpose.

These parts of outputs are left out, because they do not depend on the format alone:

- versions: of tokengraft and of libraries, wherever a file records them
- the bytes of a Parquet file, which depend on the version of pyarrow: the content of its footer is listed instead, and
  the hash of its rows
- the compression of the data of a report, which depends on zlib: the data are listed decompressed, and scripts and
  styles, which are files of the package, are left out
- which loaders are installed (`loaded_by` and `notes`)
- digits of a fraction after the tenth, which depend on the processor

A file of more than 20,000 bytes is kept as its size and hash.
"""

import argparse
import base64
import json
import os
import re
import shutil
import sys
import tempfile
import zlib
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path

from pytest import MonkeyPatch  # noqa: PT013

HERE = Path(__file__).parent
FILES = HERE / "files"
LARGEST = 20_000
_VERSIONS = re.compile(rb'"versions": \{[^}]*\}')
_VERSION = re.compile(rb'"(tokengraft|tokengraft_version)": "\d+\.[\w.]+"')
_FRACTION = re.compile(rb"-?\d+\.\d{10,}(e-?\d+)?")
_INSTALLED = ("loaded_by", "notes")


def made(name):
    """The files that a writer writes, by path, in the form in which they are kept."""
    from golden_inputs import write_all
    from golden_writers import GOLDEN

    with tempfile.TemporaryDirectory() as folder, plain_surroundings(folder):
        write_all(Path())
        out = Path("golden")
        out.mkdir()
        GOLDEN[name](out)
        return dict(kept(path, path.relative_to(out)) for path in sorted(out.rglob("*")) if path.is_file())


@contextmanager
def plain_surroundings(folder):
    """Works in a folder, as if transformers were not installed, and without a date in records."""
    before = Path.cwd()
    os.chdir(folder)
    try:
        with MonkeyPatch.context() as patch:  # not `patch.dict`, which forgets modules that are imported meanwhile
            patch.setitem(sys.modules, "transformers", None)
            patch.delenv("SOURCE_DATE_EPOCH", raising=False)
            yield
    finally:
        os.chdir(before)


def kept(path, name):
    """The name and the bytes of the golden file of an output."""
    raw = reduced(path)
    if len(raw) > LARGEST:
        return f"{name.as_posix()}.sha256", f"{sha256(raw).hexdigest()} {len(raw)} bytes\n".encode()
    return name.as_posix(), raw


def reduced(path):
    """The bytes of an output without what does not depend on its format."""
    if path.suffix == ".parquet":
        return parquet(path)
    if path.suffix == ".html":
        return page(path.read_text(encoding="utf-8"))
    raw = path.read_bytes()
    return without_versions(raw) if path.suffix == ".json" else raw


def without_versions(raw):
    """JSON without versions, installed loaders and the last digits of fractions."""
    raw = _VERSION.sub(rb'"\1": ""', _VERSIONS.sub(b'"versions": {}', raw))
    raw = _FRACTION.sub(lambda match: b"%.10g" % float(match[0]), raw)
    for name in _INSTALLED:
        raw = re.sub(rb'"%s": \[[^\]]*\]' % name.encode(), b'"%s": []' % name.encode(), raw)
    return raw


def parquet(path):
    """What the footer of a Parquet file says, and the hash of its rows."""
    import pyarrow.parquet as pq

    metadata, rows = pq.read_metadata(path), repr(pq.read_table(path).to_pydict())
    columns = [metadata.row_group(0).column(at) for at in range(metadata.num_columns)]
    footer = {
        "rows": [metadata.row_group(at).num_rows for at in range(metadata.num_row_groups)],
        "columns": [[c.path_in_schema, c.physical_type, c.compression, sorted(c.encodings)] for c in columns],
        "metadata": {key.decode(): value.decode() for key, value in metadata.metadata.items() if b"ARROW" not in key},
    }
    text = json.dumps(footer, indent=1, ensure_ascii=False).replace("\\", "").encode()
    return without_versions(text) + b"\nrows: " + sha256(rows.encode()).hexdigest().encode() + b"\n"


def page(text):
    """The HTML of a report, with its data as text."""
    packed = re.search(r'<script id="data" type="text/plain">(.*?)</script>', text, re.DOTALL)
    columns = zlib.decompress(base64.b64decode(packed[1]))
    text = text.replace(packed[1], f"sha256 {sha256(without_versions(columns)).hexdigest()}")
    text = re.sub(r"<(script|style)>.*?</\1>", r"<\1></\1>", text, flags=re.DOTALL)
    return re.sub(r"\d+\.\d+\.\d+", "", text).encode()


def stored(name):
    """The golden files of a writer, by path."""
    folder = FILES / name
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def write(names):
    """Writes the golden files again."""
    for name in names:
        files = made(name)
        shutil.rmtree(FILES / name, ignore_errors=True)
        for path, data in files.items():
            (FILES / name / path).parent.mkdir(parents=True, exist_ok=True)
            (FILES / name / path).write_bytes(data)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", required=True, help="write the golden files again")
    parser.add_argument("names", nargs="*", help="which (default: all)")
    options = parser.parse_args()
    sys.path[:0] = [str(HERE), str(HERE.parent)]
    from golden_writers import GOLDEN

    write(options.names or GOLDEN)
