"""Everything beside the weights: tokenizer files, configs, other files, and folders of sentence-transformers.

`modules.json` of sentence-transformers names the parts of a model, most of them with a folder of their own. Such a
part, for example pooling or a dense layer, does not depend on the vocabulary, and its files are copied. One that does
is refused by name. Nothing is unpickled, and no class that `modules.json` names is imported.
"""

import json
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Any

from tokengraft.checkpoint.folder import INDEX, OTHER_WEIGHTS, Checkpoint
from tokengraft.checkpoint.ids import (
    CONFIG,
    CONFIGS,
    GENERATION,
    GENERATION_FIELDS,
    Renumbering,
    changed_roles,
    id_fields,
    parse_config,
    read_config,
    suppressing,
    with_roles,
)
from tokengraft.checkpoint.layout import Vocabulary
from tokengraft.checkpoint.tensors import TensorFile
from tokengraft.errors import CheckpointError, option
from tokengraft.formats.sources import folder_files, is_template, is_tokenizer_file
from tokengraft.output.json_file import JsonStyle
from tokengraft.tokenizer.added import SETTINGS, SPECIAL_MAP
from tokengraft.tokenizer.change import Change
from tokengraft.tokenizer.rewrite import TOKENIZER_JSON, rewrite_files, stale_files
from tokengraft.tokenizer.tokenizer import Tokenizer
from tokengraft.vocab_plan import VocabPlan

CARD = "README.md"
"""The model card. It is written anew, with that of the source below."""
REPORT = "tokengraft.json"
TRAINING = "training.json"
ADAPT_FILES = ("adaptation.json", "report.html", TRAINING)
"""What `adapt` writes beside the model."""
TRAIN_FILES = LOG, PLOT, PAGE = "training_log.json", "training.svg", "training.html"
"""What `train` writes beside the model: they describe its weights, not those of a model that is made of it."""
_REPORTS = (REPORT, *ADAPT_FILES, *TRAIN_FILES)
_TEMPLATES = "additional_chat_templates"
MODULES = "modules.json"


@dataclass(frozen=True)
class ModelFiles:
    """The files without weights: written, copied and left out."""

    written: Mapping[str, bytes]
    """By relative path: tokenizer files, configs and the index."""
    tokenizer: tuple[str, ...]
    """Names of the written tokenizer files."""
    carried: tuple[str, ...]
    """Tokenizer files of the source that the new tokenizer does not have."""
    copied: tuple[str, ...]
    """Files of the source that are copied unchanged."""
    left_out: tuple[str, ...]
    """Files of the source that are not written because they belong to the old vocabulary."""


def model_files(
    source: Checkpoint, vocabulary: Vocabulary, tokenizers: tuple[Tokenizer, Tokenizer], renumbering: Renumbering
) -> ModelFiles:
    """The files of a new checkpoint without weights. The tokenizers are the old and the new one."""
    tokenizer = _tokenizer_files(*tokenizers, renumbering)
    modules, roles = module_files(source.folder), changed_roles(*tokenizers)
    require_no_vocabulary(source.folder, modules, vocabulary.rows)
    written, copied, left_out = dict(tokenizer.written), [*modules], [*tokenizer.left_out]
    ours = {file.path.name for file in source.files} | {name.split("/")[0] for name in modules}
    ours |= {_TEMPLATES} if (source.folder / _TEMPLATES).is_dir() else set()
    for path in other_entries(source.folder, ours):
        if path.name in CONFIGS:
            config, raw = read_config(path), path.read_bytes()
            changed = renumbering.config(config, path.name) if isinstance(config, dict) else config
            if roles and isinstance(changed, dict):
                changed = with_roles(changed, roles, path.name)
            written[path.name] = raw if changed == config else JsonStyle.of(raw).dump(changed)
        elif path.name == INDEX:
            written[path.name] = _index(source, vocabulary, renumbering.rows[1])
        elif is_old(path):
            left_out.append(path.name + "/" * path.is_dir())
        elif path.name != CARD:
            copied.append(path.name)
    return replace(tokenizer, written=written, copied=tuple(copied), left_out=tuple(sorted(left_out)))


def _tokenizer_files(old: Tokenizer, new: Tokenizer, renumbering: Renumbering) -> ModelFiles:
    """The tokenizer files: those of the new tokenizer, and those that only the source has, rewritten or left out."""
    brought = folder_files(new)
    missing = {name for name in (old.main, *old.files) if name not in brought}
    left_out = {*_unfit(old, new, missing, brought)}
    kept = {name: raw for name, raw in old.files.items() if name in missing - left_out}
    renumbering.config(_content(kept, SETTINGS), SETTINGS)  # refuses the id of a removed token
    change = Change(old.ids, new.ids, new.added)
    written = {**brought, **dict(rewrite_files(kept, change, new.merge_strings))}
    _require_tokens(old, new, renumbering.plan, written)
    return ModelFiles(written, tuple(written), tuple(sorted(kept)), (), tuple(sorted(left_out)))


def _unfit(old: Tokenizer, new: Tokenizer, missing: Iterable[str], brought: Mapping[str, bytes]) -> Iterator[str]:
    """Files that list tokens in a format that cannot be written, or that conflict with files of the new tokenizer."""
    lists = {TOKENIZER_JSON, "vocab.txt", old.piece_file, *stale_files(old.files)}
    if old.kind != new.kind:  # another alphabet, and another class
        lists |= {SETTINGS, "vocab.json", "merges.txt", "added_tokens.json"}
    has_template = any(map(is_template, brought)) or bool(_content(brought, SETTINGS).get("chat_template"))
    for name in missing:
        if name in lists or (has_template and is_template(name)):
            yield name


def _require_tokens(old: Tokenizer, new: Tokenizer, changes: VocabPlan, written: Mapping[str, bytes]) -> None:
    """Refuses settings that name a token that the old tokenizer has and the new one does not."""
    before = _content(old.files, SETTINGS)
    for file in (SETTINGS, SPECIAL_MAP):
        for field, value in _content(written, file).items():
            removed = [text for text in _texts(field, value) if text in old.ids and text not in new.ids]
            # A tokenizer that another tool wrote may still have the id of a removed token.
            stale = field.endswith("_token_id") and value == before.get(field) and value in changes.removed
            if removed or stale:
                raise CheckpointError(
                    f"`{field}` in `{file}` is {removed[0] if removed else value!r}, a token that the new tokenizer "
                    "does not have",
                    hint=f"protect that token when you prune: {option('protect')}",
                )


def _content(files: Mapping[str, bytes], name: str) -> dict[str, Any]:
    content = parse_config(files[name], name) if name in files else None
    return content if isinstance(content, dict) else {}


def _texts(field: str, value: Any) -> Iterator[str]:
    """The tokens that a field such as `eos_token` names: as text, as an object, or as a list of these."""
    if not field.endswith(("_token", "_special_tokens")):
        return
    for item in value if isinstance(value, list) else [value]:
        text = item.get("content") if isinstance(item, dict) else item
        if isinstance(text, str):
            yield text


def used_by_configs(files: ModelFiles) -> list[tuple[str, int]]:
    """The ids that the written configs use, with their fields."""
    configs = [json.loads(files.written[name]) for name in CONFIGS if name in files.written]
    return [field for config in configs for field in id_fields(config)]


def with_suppressed(files: ModelFiles, unused: Collection[int]) -> ModelFiles:
    """The files with ids that `generate` of transformers must not choose, in the generation config.

    Without one, a generation config is written that says what transformers takes from the model's config.
    """
    if not unused:
        return files
    raw = files.written.get(GENERATION)
    if not raw:
        config = json.loads(files.written[CONFIG])
        parts = [part for part in (config.get("text_config"), config) if isinstance(part, dict)]
        fields = {name: part[name] for part in parts for name in GENERATION_FIELDS if part.get(name) is not None}
        raw = json.dumps(fields, indent=2).encode() + b"\n"
    config = json.loads(raw)
    if not isinstance(config, dict):
        raise CheckpointError(
            f"`{GENERATION}` is not a JSON object, and has to list ids without a token",
            hint=f"correct `{GENERATION}` in the source, or pass {option('hole_rows', 'keep')}",
        )
    return replace(files, written={**files.written, GENERATION: JsonStyle.of(raw).dump(suppressing(config, unused))})


def other_entries(folder: Path, ours: Collection[str]) -> Iterator[Path]:
    """What a folder has beside some files, tokenizer files and hidden files."""
    for path in sorted(folder.iterdir()):
        if not (path.name in ours or path.name.startswith(".") or is_tokenizer_file(Path(path.name))):
            yield path


def untrained_rows(folder: Path) -> frozenset[int]:
    """The rows that an earlier adaptation added to a model, by its record. A record of training lists none."""
    report: Any = None
    with suppress(OSError, CheckpointError):  # no record, or a file that only has its name
        report = parse_config((folder / REPORT).read_bytes(), REPORT)
    rows = report.get("new_ids") if isinstance(report, dict) else None
    return frozenset(row for row in rows if type(row) is int) if isinstance(rows, list) else frozenset()


def is_old(path: Path) -> bool:
    """Whether an entry belongs to the old vocabulary: weights in other formats, folders that may have some, reports."""
    is_index = path.name.endswith(".index.json")
    return not path.is_file() or path.suffix in OTHER_WEIGHTS or is_index or path.name in _REPORTS


def _index(source: Checkpoint, vocabulary: Vocabulary, rows: int) -> bytes:
    """The index of tensors with the new total sizes."""
    raw = (source.folder / INDEX).read_bytes()
    index = json.loads(raw)
    metadata, tables = index.get("metadata"), vocabulary.tensors
    sizes = {
        "total_size": sum(table.row_bytes for table in tables),
        "total_parameters": sum(table.width for table in tables),
    }
    for name, of_a_row in sizes.items():
        if isinstance(metadata, dict) and isinstance(metadata.get(name), int | float):
            metadata[name] = int(metadata[name]) + (rows - vocabulary.rows) * of_a_row
    return JsonStyle.of(raw).dump(index)


def written_before(folder: Path) -> Callable[[Path], bool]:
    """A test whether an earlier transplant wrote a file of a folder, according to its report."""
    files = recorded(folder, "files")
    names = {*map(str, files), REPORT} if isinstance(files, list) else set()
    return lambda path: path.as_posix() in names


def recorded(folder: Path, *keys: str) -> Any:
    """What the record of a folder has under some keys, one inside the other; None if it has none."""
    try:
        found = json.loads((folder / REPORT).read_bytes())
        for key in keys:
            found = found[key]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None
    return found


def require_transformer_here(folder: Path) -> None:
    """Refuses a folder of sentence-transformers whose transformer is in a folder inside it."""
    for path, kind in _modules(folder):
        if path.parts and kind.rsplit(".", 1)[-1].endswith("Transformer"):
            raise CheckpointError(
                f"`{folder}` is a folder of sentence-transformers whose transformer is in `{path}`",
                hint=f"transplant `{folder / path}`, then put the result in the place of `{path}` in a copy of the "
                "folder",
            )


def module_files(folder: Path) -> list[str]:
    """The files in folders that `modules.json` names, by their relative paths. Folders that are links are not read."""
    found = set[str]()
    for place in (folder / inner for inner, _ in _modules(folder) if inner.parts):
        for parent, folders, names in os.walk(place) if not place.is_symlink() else ():
            folders[:] = [name for name in folders if not name.startswith(".")]
            shown = (Path(parent) / name for name in names if not name.startswith("."))
            found.update(path.relative_to(folder).as_posix() for path in shown if path.is_file())
    return sorted(found)


def require_no_vocabulary(folder: Path, names: list[str], rows: int) -> None:
    """Refuses files of modules that depend on the vocabulary: a tokenizer, or a size as large as the embedding."""
    for name in names:
        path = folder / name
        if is_tokenizer_file(Path(path.name)):
            what = "is a tokenizer of its own"
        elif path.suffix == ".safetensors" and any(rows in t.shape for t in TensorFile.open(path).tensors.values()):
            what = f"has a tensor with an axis of {rows:,}, as long as the vocabulary"
        elif path.suffix == ".json" and rows in _numbers(read_config(path)):
            what = f"has the number {rows:,}, the size of the vocabulary"
        else:
            continue
        raise CheckpointError(
            f"`{name}`, which `{MODULES}` names as a part of the model, {what}: it would no longer match",
            hint="pass a model whose other modules do not depend on the vocabulary, such as pooling and dense layers",
        )


def _modules(folder: Path) -> Iterator[tuple[PurePosixPath, str]]:
    """The folder of every module, which is empty for this one, and the name of its class."""
    path = folder / MODULES
    listed = read_config(path) if path.is_file() else None
    for module in listed if isinstance(listed, list) else []:
        inner = module.get("path") if isinstance(module, dict) else None
        if not isinstance(inner, str):
            continue
        place = PurePosixPath(inner)
        if place.is_absolute() or ".." in place.parts or "\\" in inner or "\0" in inner:
            raise CheckpointError(
                f"`{path}` names `{inner!r:.80}` as the folder of a module, which is not inside `{folder}`",
                hint="correct the path in the source",
            )
        yield place, str(module.get("type"))


def _numbers(value: Any) -> Iterator[int]:
    """Every whole number in JSON data."""
    if isinstance(value, dict | list):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _numbers(item)
    elif type(value) is int:
        yield value
