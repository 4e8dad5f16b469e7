"""Opens a checkpoint folder (`open_checkpoint`) and finds its tensors with a vocabulary axis (`find_vocabulary`).

Reads headers, and tables only if that is the only way to know whether they are tied. Nothing is unpickled, and no code
of the folder is executed.
"""

import json
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any, Literal

from tokengraft.checkpoint.byte_ranges import equal_bytes
from tokengraft.checkpoint.ids import read_config
from tokengraft.checkpoint.other_tables import require_no_other_tables
from tokengraft.checkpoint.tensors import ITEM_BYTES, TensorFile, TensorInfo
from tokengraft.errors import CheckpointError, SourceNotFoundError
from tokengraft.output.json_file import parse_json, require_plain

Role = Literal["input", "output", "bias"]
PER_LAYER, PER_LAYER_SIZE = "embed_tokens_per_layer", "vocab_size_per_layer_input"
INDEX = "model.safetensors.index.json"
SINGLE = "model.safetensors"
OTHER_WEIGHTS = (".bin", ".pt", ".pth", ".ckpt", ".gguf", ".ggml", ".onnx", ".h5", ".msgpack", ".safetensors")
_PICKLED = (".bin", ".pt", ".pth", ".ckpt")
_TRAINING = ("training_args", "optimizer", "scheduler", "rng_state", "scaler")
"""Prefixes of files of a training run that have the suffixes of weights."""
_QUANTISED = ("qweight", "qzeros", "scales", "weight_scale", "weight_scale_inv", "absmax", "weight.absmax")
_INPUT_NAMES = ("embed", "wte", "word_embeddings", "emb.")
_OUTPUT_NAMES = ("lm_head", "embed_out", "output.", "head.")


@dataclass(frozen=True)
class Checkpoint:
    """The files of a model."""

    folder: Path
    config: dict[str, Any]
    files: tuple[TensorFile, ...]
    index: dict[str, Any] | None
    """The content of `model.safetensors.index.json`; None if the weights are in one file."""

    @property
    def text_config(self) -> dict[str, Any]:
        """The part of the config that describes the language model; in multimodal models it is nested."""
        nested = self.config.get("text_config")
        return nested if isinstance(nested, dict) and "vocab_size" in nested else self.config


@dataclass(frozen=True)
class VocabTensor:
    """A tensor whose first axis is the vocabulary."""

    info: TensorInfo
    file: TensorFile
    role: Role
    further: bool = False
    """Whether it is a table beside the embedding and the output, such as those of multi-token prediction. It may have
    fewer rows, if it is for the first ids only."""


@dataclass(frozen=True)
class Vocabulary:
    """The tensors of a checkpoint that have a vocabulary axis."""

    tensors: tuple[VocabTensor, ...]
    rows: int
    tied: bool
    """Whether input and output are tied: one tensor, or two that must stay equal."""
    found_by: str
    """How the tensors were found: by the names of an architecture, or by their shapes."""

    @property
    def shorter(self) -> tuple[VocabTensor, ...]:
        """The tables that are for the first ids only."""
        return tuple(tensor for tensor in self.tensors if tensor.info.shape[0] < self.rows)


def has_weights(source: str | os.PathLike[str]) -> bool:
    """Whether a source is a folder with weights that `transplant` reads. Looks at names only.

    False for a tokenizer without a model: a folder, a file or a hub name.

    Raises:
        CheckpointError: It has weights, but in formats that `transplant` refuses, such as `pytorch_model.bin`.
    """
    if not os.path.isdir(source):  # noqa: PTH112 (false, not an error, for a name that is too long)
        return False
    folder = Path(source)
    if any(os.path.lexists(folder / name) for name in (SINGLE, INDEX)):
        return True
    if any(_weights_in(folder)):
        raise _missing(folder, SINGLE, sharded=False)
    return False


def open_checkpoint(folder: Path) -> Checkpoint:
    """The checkpoint in a folder.

    Raises:
        SourceNotFoundError: The folder is not a checkpoint.
        CheckpointError: It is damaged, or its weights are pickled.
    """
    config_path = folder / "config.json"
    if not _is_file(config_path):
        raise SourceNotFoundError(
            f"`{folder}` has no `config.json`, so it is not a checkpoint",
            hint="pass the folder of a model with weights",
        )
    config = read_config(config_path)
    if not isinstance(config, dict):
        raise CheckpointError(f"`{config_path}` is not a JSON object", hint="download the model again")
    index = _read_index(folder / INDEX)
    names = sorted(set(index["weight_map"].values())) if index else [SINGLE]
    if SINGLE not in names and _is_file(folder / SINGLE):
        raise CheckpointError(
            f"`{folder}` has both `{SINGLE}` and `{INDEX}`, which lists other files; transformers loads the first",
            hint="remove the weights that you do not want, and their index",
        )
    missing = [name for name in names if Path(name).name != name or not _is_file(folder / name)]
    if missing:
        raise _missing(folder, missing[0], sharded=index is not None)
    files = tuple(TensorFile.open(folder / name) for name in names)
    checkpoint = Checkpoint(folder, config, files, index)
    _require_listed(checkpoint)
    return checkpoint


def _is_file(path: Path) -> bool:
    return os.path.isfile(path)  # noqa: PTH113 (false, not an error, for a name that is too long)


def _read_index(path: Path) -> dict[str, Any] | None:
    if not path.is_file():
        return None
    index = parse_json(path.read_bytes(), str(path))
    require_plain(index, str(path))
    weight_map = index.get("weight_map") if isinstance(index, dict) else None
    if not isinstance(weight_map, dict) or not weight_map:
        raise CheckpointError(f"`{path}` has no `weight_map`", hint="download the model again")
    wrong = [value for value in weight_map.values() if not isinstance(value, str)]
    if wrong:
        raise CheckpointError(f"`{path}` lists {wrong[0]!r} as a file", hint="download the model again")
    return dict(index)


def _weights_in(folder: Path) -> Iterator[str]:
    """The names of files that hold weights, in any format."""
    names = sorted(path.name for path in folder.iterdir())
    return (name for name in names if name.endswith(OTHER_WEIGHTS) and not name.startswith(_TRAINING))


def _missing(folder: Path, name: str, *, sharded: bool) -> CheckpointError:
    others = [] if sharded else [*_weights_in(folder)]
    pickled = [other for other in others if other.endswith(_PICKLED)]
    if pickled:
        return CheckpointError(
            f"the weights in `{folder}` are pickled (`{pickled[0]}`), and unpickling can run any code",
            hint="if you trust them, load the model and save it: `model.save_pretrained('NEW')` writes safetensors",
        )
    if others:
        return CheckpointError(
            f"`{folder}` has neither `{SINGLE}` nor `{INDEX}`; its weights are in `{others[0]}`, which is not read",
            hint="save the model as safetensors: `model.save_pretrained('NEW')`",
        )
    return CheckpointError(f"`{folder}` lacks `{name}`", hint="download the checkpoint again")


def _require_listed(checkpoint: Checkpoint) -> None:
    """Refuses an index that does not match the files."""
    held: dict[str, str] = {}
    for file_ in checkpoint.files:
        for name in file_.tensors:
            if held.setdefault(name, file_.path.name) != file_.path.name:
                raise CheckpointError(
                    f"both `{held[name]}` and `{file_.path.name}` have the tensor `{name}`",
                    hint="download the checkpoint again",
                )
    for name, file in (checkpoint.index or {"weight_map": held})["weight_map"].items():
        if held.get(name) != file:
            raise CheckpointError(
                f"`{INDEX}` lists the tensor `{name}` in `{file}`, which does not have it",
                hint="download the checkpoint again",
            )


def find_vocabulary(checkpoint: Checkpoint) -> Vocabulary:
    """The tensors with a vocabulary axis, by the table of architectures, or by their shapes.

    Raises:
        CheckpointError: The architecture is not supported, or the tensors cannot be identified.
    """
    config = checkpoint.config
    if config.get("is_encoder_decoder"):
        raise CheckpointError(
            "the model is an encoder-decoder, which is not supported",
            hint="pass a decoder-only model",
        )
    _refuse_strange_tables(checkpoint)
    known = _known_architecture(config)
    found_by = f"the names of {known}" if known else "their shapes: the architecture is not in the table"
    vocabulary = _checked(checkpoint, vocabulary_tensors(checkpoint), found_by)
    listed_names = {tensor.info.name for tensor in vocabulary.tensors}
    everything = (tensor for file in checkpoint.files for tensor in file.tensors.values())
    others = (tensor for tensor in everything if tensor.name not in listed_names)
    require_no_other_tables(((other.name, other.shape) for other in others), vocabulary.rows, config)
    return vocabulary


def vocabulary_tensors(checkpoint: Checkpoint) -> list[VocabTensor]:
    """The tensors with a vocabulary axis, not checked: by the table of architectures, or by their shapes.

    Raises:
        CheckpointError: The architecture is not in the table, and the role of a tensor cannot be determined.
    """
    known = _known_architecture(checkpoint.config)
    tensors = _by_name(checkpoint, _architectures()["architectures"][known]) if known else _by_shape(checkpoint)
    return tensors + _further(checkpoint)


def _further(checkpoint: Checkpoint) -> list[VocabTensor]:
    """Tables beside embedding and output: of multi-token prediction (DeepSeek-V3), and for each layer (Gemma-3n)."""
    found = ((tensor, file) for file in checkpoint.files for tensor in file.tensors.values())
    return [VocabTensor(tensor, file, role, True) for tensor, file in found if (role := _further_role(tensor.name))]


def _further_role(name: str) -> Role | None:
    patterns: dict[Role, list[str]] = _architectures()["further"]
    return next((role for role, some in patterns.items() for one in some if re.fullmatch(one, name)), None)


def _known_architecture(config: dict[str, Any]) -> str | None:
    listed = config.get("architectures")
    names = [name for name in listed if isinstance(name, str)] if isinstance(listed, list) else []
    return next((name for name in names if name in _architectures()["architectures"]), None)


@cache
def _architectures() -> dict[str, Any]:
    text = resources.files("tokengraft.checkpoint").joinpath("architectures.json").read_text(encoding="utf-8")
    table: dict[str, Any] = json.loads(text)
    return table


def _by_name(checkpoint: Checkpoint, family: str) -> list[VocabTensor]:
    held = {name: (tensor, file) for file in checkpoint.files for name, tensor in file.tensors.items()}
    wanted: dict[Role, list[str]] = _architectures()["families"][family]
    return [VocabTensor(*held[name], role) for role, names in wanted.items() for name in names if name in held]


def _by_shape(checkpoint: Checkpoint) -> list[VocabTensor]:
    """Tensors whose first axis is as long as the vocabulary, with roles by their names."""
    size = checkpoint.text_config.get("vocab_size")
    candidates = []
    for file in checkpoint.files:
        for tensor in file.tensors.values():
            if type(size) is not int or size not in tensor.shape or _further_role(tensor.name):
                continue
            role = _guess(tensor)
            if role is None or tensor.shape[0] != size:
                raise CheckpointError(
                    f"the tensor `{tensor.name}` has an axis of {size:,}, as long as the vocabulary, and the "
                    "architecture is unknown: its role cannot be determined",
                    hint="please report the architecture, with the names and shapes of its tensors",
                )
            candidates.append(VocabTensor(tensor, file, role))
    return candidates


def _guess(tensor: TensorInfo) -> Role | None:
    is_output = any(part in tensor.name for part in _OUTPUT_NAMES)
    if len(tensor.shape) == 1:
        return "bias" if is_output and tensor.name.endswith("bias") else None
    if len(tensor.shape) != 2:
        return None
    return "output" if is_output else "input" if any(part in tensor.name for part in _INPUT_NAMES) else None


def _checked(checkpoint: Checkpoint, tensors: list[VocabTensor], found_by: str) -> Vocabulary:
    roles = [tensor.role for tensor in tensors if not tensor.further]
    if roles.count("input") != 1 or any(roles.count(role) > 1 for role in roles):
        names = ", ".join(f"`{tensor.info.name}`" for tensor in tensors) or "none"
        raise CheckpointError(
            f"expected one input embedding, by {found_by}; found: {names}",
            hint="please report the architecture, with the names and shapes of its tensors",
        )
    for tensor in tensors:
        if len(tensor.info.shape) != (1 if tensor.role == "bias" else 2) or not tensor.info.size:
            raise CheckpointError(
                f"`{tensor.info.name}` has the shape {tensor.info.shape}, which is not that of a table of tokens",
                hint="download the checkpoint again",
            )
    rows = next(tensor.info.shape[0] for tensor in tensors if tensor.role == "input" and not tensor.further)
    for tensor in tensors:
        _require_plain(tensor, rows, checkpoint)
    order: dict[Role, int] = {"input": 0, "output": 1, "bias": 2}
    ordered = tuple(sorted(tensors, key=lambda tensor: (tensor.further, order[tensor.role])))
    return Vocabulary(ordered, rows, _is_tied(checkpoint, tensors), found_by)


def _is_tied(checkpoint: Checkpoint, tensors: list[VocabTensor]) -> bool:
    """Whether input and output share their rows.

    Without an output they do. With an output, the config decides. If the config has no `tie_word_embeddings`, two equal
    tables are treated as tied: transformers unties tables that differ, whatever the default of the class is.
    """
    by_role = {tensor.role: tensor for tensor in tensors if not tensor.further}
    if "output" not in by_role:
        return True
    says_tied = checkpoint.config.get("tie_word_embeddings", checkpoint.text_config.get("tie_word_embeddings"))
    if says_tied is not None:
        return bool(says_tied)
    return _same_bytes(by_role["input"], by_role["output"])


def _same_bytes(first: VocabTensor, second: VocabTensor) -> bool:
    size = first.info.size
    with first.file.path.open("rb", buffering=0) as one, second.file.path.open("rb", buffering=0) as other:
        return size == second.info.size and equal_bytes(one, first.info.start, other, second.info.start, size)


def _require_plain(tensor: VocabTensor, rows: int, checkpoint: Checkpoint) -> None:
    info = tensor.info
    base = info.name.removesuffix("weight")
    scales = [name for name in tensor.file.tensors if name.startswith(base) and name[len(base) :] in _QUANTISED]
    if info.dtype not in ITEM_BYTES or scales:
        raise CheckpointError(
            f"`{info.name}` is of the type {info.dtype}{', with ' + scales[0] if scales else ''}: it is quantised",
            hint="transplant the unquantised model (bf16, f16 or f32) and quantise the result",
        )
    if tensor.further and PER_LAYER in info.name:
        _require_per_layer(tensor, rows, checkpoint)
        return
    size = checkpoint.text_config.get("vocab_size")
    if info.shape[0] != rows or (size is not None and size != rows):
        raise CheckpointError(
            f"`{info.name}` has {info.shape[0]:,} rows, the input embedding {rows:,}, and config.json says {size}",
            hint="save the model again with transformers, which makes them agree",
        )


def _require_per_layer(tensor: VocabTensor, rows: int, checkpoint: Checkpoint) -> None:
    """Refuses a table for each layer that is not as the config says. It may be for the first ids only."""
    held, size = tensor.info.shape[0], checkpoint.text_config.get(PER_LAYER_SIZE)
    if held != size or held > rows:
        raise CheckpointError(
            f"`{tensor.info.name}` has {held:,} rows, the input embedding {rows:,}, and `{PER_LAYER_SIZE}` in "
            f"config.json is {size}",
            hint="save the model again with transformers, which makes them agree",
        )


def _refuse_strange_tables(checkpoint: Checkpoint) -> None:
    for file in checkpoint.files:
        for name in file.tensors:
            if "embed" in name and "per_layer" in name and not _further_role(name):
                raise CheckpointError(
                    f"the model has a table of tokens for each layer (`{name}`), which is not supported",
                    hint="pass a model with one input embedding",
                )
            if any(name.endswith(f"{head}.{part}") for head in ("lm_head", "embed_tokens") for part in _QUANTISED):
                raise CheckpointError(
                    f"`{name}` belongs to a quantised table of tokens",
                    hint="transplant the unquantised model (bf16, f16 or f32) and quantise the result",
                )
