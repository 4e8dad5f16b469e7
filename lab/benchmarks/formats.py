"""The lines of a text, twenty to a document, as Parquet and as compressed JSON lines.

python -m lab.benchmarks.formats TEXT OUT_FOLDER
"""

import json
import sys
from itertools import islice
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq


def write_formats(text: Path, folder: Path) -> None:
    """Writes `text.parquet` and `text.jsonl.zst`."""
    with text.open(encoding="utf-8", errors="replace", newline="\n") as lines:
        documents = ["".join(group) for group in iter(lambda: [*islice(lines, 20)], [])]
    table = pa.table({"text": documents})
    pq.write_table(table, folder / "text.parquet", compression="zstd", row_group_size=5000)
    with pa.CompressedOutputStream(str(folder / "text.jsonl.zst"), "zstd") as stream:
        for document in documents:
            stream.write(json.dumps({"text": document}, ensure_ascii=False).encode() + b"\n")


if __name__ == "__main__":
    write_formats(Path(sys.argv[1]), Path(sys.argv[2]))
