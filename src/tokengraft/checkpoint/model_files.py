"""`model_files`: every file of a new checkpoint without weights: tokenizer, configs, the index, and copied files.

All of them are built before anything is written, so that errors are found first.
"""

import json
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from math import prod
from pathlib import Path
from typing import Any

from tokengraft.checkpoint.ids import (
    CONFIGS,
    GENERATION,
    GENERATION_FIELDS,
    MAIN,
    read_config,
    renumber_config,
    suppressing,
    used_ids,
)
from tokengraft.checkpoint.layout import INDEX, OTHER_WEIGHTS, Checkpoint, Vocabulary
from tokengraft.checkpoint.tokenizer_files import tokenizer_files
from tokengraft.errors import CheckpointError
from tokengraft.formats.files import is_tokenizer_file
from tokengraft.output.json_file import JsonStyle
from tokengraft.plan import VocabPlan
from tokengraft.tokenizer.tokenizer import Tokenizer

REPORT = "tokengraft.json"
TRAINING = "training.json"
ADAPT_FILES = ("adaptation.json", "report.html", TRAINING)
"""What `adapt` writes beside the model."""


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
    source: Checkpoint, vocabulary: Vocabulary, tokenizers: tuple[Tokenizer, Tokenizer], changes: VocabPlan, rows: int
) -> ModelFiles:
    """The files of a new checkpoint without weights.

    Args:
        source: The old checkpoint.
        vocabulary: Its tensors with a vocabulary axis.
        tokenizers: The old and the new one.
        changes: The plan from one to the other.
        rows: Rows of the new embedding.

    Raises:
        CheckpointError: A config names a removed token, or cannot be read.
    """
    sizes = (vocabulary.rows, rows)
    tokenizer = tokenizer_files(*tokenizers, changes, sizes)
    written, copied, left_out = dict(tokenizer.written), [], [*tokenizer.left_out]
    for path in _entries(source):
        if path.name in CONFIGS:
            written[path.name] = _config(path, changes, sizes)
        elif path.name == INDEX:
            written[path.name] = _index(source, vocabulary, rows)
        elif _is_old(path):
            left_out.append(path.name + "/" * path.is_dir())
        else:
            copied.append(path.name)
    return ModelFiles(written, tuple(tokenizer.written), tokenizer.carried, tuple(copied), tuple(sorted(left_out)))


def used_by_configs(files: ModelFiles) -> set[int]:
    """The ids that the written configs use."""
    configs = [json.loads(files.written[name]) for name in CONFIGS if name in files.written]
    return {token_id for config in configs for token_id in used_ids(config)}


def with_suppressed(files: ModelFiles, unused: Collection[int]) -> ModelFiles:
    """The files with ids that `generate` of transformers must not choose, in the generation config.

    Without one, a generation config is written that says what transformers takes from the model's config.

    Raises:
        CheckpointError: The generation config cannot list them.
    """
    if not unused:
        return files
    raw = files.written.get(GENERATION) or _generation_config(json.loads(files.written[MAIN]))
    config = json.loads(raw)
    if not isinstance(config, dict):
        raise CheckpointError(
            f"`{GENERATION}` is not a JSON object, and has to list ids without a token",
            hint=f"correct `{GENERATION}` in the source, or pass --hole-rows keep",
        )
    return replace(files, written={**files.written, GENERATION: JsonStyle.of(raw).dump(suppressing(config, unused))})


def _generation_config(config: Mapping[str, Any]) -> bytes:
    """What a generation config made from a model's config has: its ids, and settings that old configs have."""
    parts = [part for part in (config.get("text_config"), config) if isinstance(part, dict)]
    fields = {name: part[name] for part in parts for name in GENERATION_FIELDS if part.get(name) is not None}
    return json.dumps(fields, indent=2).encode() + b"\n"


def _entries(source: Checkpoint) -> Iterator[Path]:
    """The files of the folder except weights, tokenizer files and hidden files."""
    weights = {file.path.name for file in source.files}
    for path in sorted(source.folder.iterdir()):
        is_templates = path.is_dir() and path.name == "additional_chat_templates"
        if not (
            path.name in weights or path.name.startswith(".") or is_tokenizer_file(Path(path.name)) or is_templates
        ):
            yield path


def _is_old(path: Path) -> bool:
    """Whether an entry belongs to the old vocabulary: weights in other formats, folders that may have some, reports."""
    is_index = path.name.endswith(".index.json")
    return not path.is_file() or path.suffix in OTHER_WEIGHTS or is_index or path.name in (REPORT, *ADAPT_FILES)


def _config(path: Path, changes: VocabPlan, rows: tuple[int, int]) -> bytes:
    config = read_config(path)
    changed = renumber_config(config, changes, rows, path.name) if isinstance(config, dict) else config
    raw = path.read_bytes()
    return raw if changed == config else JsonStyle.of(raw).dump(changed)


def _index(source: Checkpoint, vocabulary: Vocabulary, rows: int) -> bytes:
    """The index of tensors with the new total sizes."""
    raw = (source.folder / INDEX).read_bytes()
    index = json.loads(raw)
    metadata = index.get("metadata")
    more = rows - vocabulary.rows
    if isinstance(metadata, dict):
        tables = [tensor.info for tensor in vocabulary.tensors]
        growth = {
            "total_size": more * sum(table.row_bytes for table in tables),
            "total_parameters": more * sum(prod(table.shape[1:]) for table in tables),
        }
        for name, change in growth.items():
            if isinstance(metadata.get(name), int | float):
                metadata[name] = int(metadata[name]) + change
    return JsonStyle.of(raw).dump(index)


def written_before(folder: Path) -> set[str]:
    """The files that an earlier transplant wrote to a folder, according to its report."""
    try:
        return {str(name) for name in json.loads((folder / REPORT).read_bytes())["files"]} | {REPORT}
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return set()
