"""`write_work`: the results of the single steps of an adaptation, as the commands for single steps read them."""

import json
from collections.abc import Mapping
from pathlib import Path

from tokengraft.adapt.result import Adaptation
from tokengraft.counts.count import HeldOutCounts
from tokengraft.formats.files import folder_files
from tokengraft.output.atomic import new_folder
from tokengraft.tokenizer.tokenizer import Tokenizer

ORDER, EXTENSION, PRUNED = "order.json", "extension.json", "pruned"
COUNTS, HELD_OUT = "counts", "held-out"


def is_work_file(path: Path) -> bool:
    """Whether `write_work` writes a file of this relative path, so that it may be replaced."""
    folder, suffix = path.parts[0], path.suffix
    if len(path.parts) == 1:
        return path.name in (ORDER, EXTENSION)
    return folder == PRUNED or (folder, suffix) in ((COUNTS, ".parquet"), (HELD_OUT, ".jsonl"))


def write_work(out: Path, result: Adaptation, parts: Mapping[str, HeldOutCounts], *, force: bool) -> None:
    """Writes the counts and held-out documents of every text, the prune order, the extension and the pruned tokenizer.

    The order applies to the base and the extension to the pruned tokenizer. Applied in this order in one process, they
    give the new tokenizer exactly. A pruned tokenizer that was loaded from its folder does not know which token had
    which id, so a token that is learned again may get another one.

    Raises:
        OutputError: The folder exists or cannot be written.
    """
    with new_folder(out, replaceable=is_work_file if force else None) as partial:
        for name, part in parts.items():
            (partial / COUNTS).mkdir(exist_ok=True)
            part.counts.save(partial / COUNTS / f"{name}.parquet")
            (partial / HELD_OUT).mkdir(exist_ok=True)
            lines = (json.dumps({"text": text}, ensure_ascii=False) + "\n" for text in part.held_out)
            (partial / HELD_OUT / f"{name}.jsonl").write_text("".join(lines), encoding="utf-8")
        if result.order is not None:
            result.order.save(partial / ORDER)
            _write_tokenizer(result.order.apply(result.base), partial / PRUNED)
        if result.extension is not None:
            result.extension.save(partial / EXTENSION)


def _write_tokenizer(tokenizer: Tokenizer, folder: Path) -> None:
    for name, data in folder_files(tokenizer).items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
