"""Opens a checkpoint folder (`open_checkpoint`), and says what is known of its architecture, by `architectures.json`.

Reads headers only. Nothing is unpickled, and no code of the folder is executed.
"""

import json
import os
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any, Literal

from tokengraft.checkpoint.ids import read_config
from tokengraft.checkpoint.tensors import Tensor, TensorFile
from tokengraft.errors import CheckpointError, SourceNotFoundError
from tokengraft.output.json_file import parse_json, require_plain

INDEX = "model.safetensors.index.json"
SINGLE = "model.safetensors"
OTHER_WEIGHTS = (".bin", ".pt", ".pth", ".ckpt", ".gguf", ".ggml", ".onnx", ".h5", ".msgpack", ".safetensors")
_ADAPTER = ("adapter_config.json", "adapter_model.safetensors", "adapter_model.bin")
_PICKLED = (".bin", ".pt", ".pth", ".ckpt")
_TRAINING = ("training_args", "optimizer", "scheduler", "rng_state", "scaler")
"""Prefixes of files of a training run that have the suffixes of weights."""
DOWNLOAD = "download the checkpoint again"
Role = Literal["input", "output", "bias"]
ENCODER, ENCODER_DECODER = "encoder", "encoder-decoder"
"""Families of architectures.json whose classes differ in their heads only."""


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

    @property
    def tensors(self) -> Iterator[Tensor]:
        """All tensors."""
        return (tensor for file in self.files for tensor in file.tensors.values())


def has_weights(source: str | os.PathLike[str]) -> bool:
    """Whether a source is a folder with weights that `transplant` reads. Looks at names only.

    False for a tokenizer without a model: a folder, a file or a hub name. Weights in other formats are an error.
    """
    if not os.path.isdir(source):  # noqa: PTH112 (false, not an error, for a name that is too long)
        return False
    folder = Path(source)
    if any(os.path.lexists(folder / name) for name in (SINGLE, INDEX)):
        return True
    if any(_weights_in(folder)):
        require_no_adapter(folder)
        raise _missing(folder, SINGLE, sharded=False)
    return False


def require_no_adapter(folder: Path) -> None:
    """Refuses a folder with an adapter of PEFT: transformers loads it, but a transplant would not change it."""
    found = next((name for name in _ADAPTER if os.path.lexists(folder / name)), None)
    if found:
        raise CheckpointError(
            f"`{folder}` has an adapter of PEFT (`{found}`), which was trained with the old vocabulary",
            hint="merge it into the model first: `peft.AutoPeftModelForCausalLM.from_pretrained(FOLDER)"
            ".merge_and_unload().save_pretrained(NEW)`; or move its files to another folder",
        )


def open_checkpoint(folder: Path) -> Checkpoint:
    """The checkpoint in a folder, if it is complete and its weights are safetensors."""
    config_path = folder / "config.json"
    if not _is_file(config_path):
        require_no_adapter(folder)
        if not os.path.isdir(folder):  # noqa: PTH112 (false, not an error, for a name that is too long)
            what = "is not a folder"
        else:
            what = "has no `config.json`" if any(_weights_in(folder)) else "has no weights and no config.json"
        raise SourceNotFoundError(
            f"`{folder}` {what}, so it is not a checkpoint", hint="pass the folder of a model with weights"
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
    for value in weight_map.values():
        if not isinstance(value, str):
            raise CheckpointError(f"`{path}` lists {value!r} as a file", hint="download the model again")
    return dict(index)


def _weights_in(folder: Path) -> Iterator[str]:
    """The names of files that hold weights, in any format."""
    names = sorted(path.name for path in folder.iterdir())
    return (name for name in names if name.endswith(OTHER_WEIGHTS) and not name.startswith(_TRAINING))


def _missing(folder: Path, name: str, *, sharded: bool) -> CheckpointError:
    others = [] if sharded else [*_weights_in(folder)]
    pickled = [other for other in others if other.endswith(_PICKLED)]
    if sharded:
        what, hint = f"`{folder}` lacks `{name}`", DOWNLOAD
    elif pickled:
        what = f"the weights in `{folder}` are pickled (`{pickled[0]}`), and unpickling can run any code"
        hint = "if you trust them, load the model and save it: `model.save_pretrained('NEW')` writes safetensors"
    elif others:
        what = f"`{folder}` has neither `{SINGLE}` nor `{INDEX}`; its weights are in `{others[0]}`, which is not read"
        hint = "save the model as safetensors: `model.save_pretrained('NEW')`"
    else:
        what = f"`{folder}` has no weights: neither `{SINGLE}` nor `{INDEX}`"
        hint = "pass the folder of a model with weights, or download them"
    return CheckpointError(what, hint=hint)


def _require_listed(checkpoint: Checkpoint) -> None:
    """Refuses an index that does not match the files."""
    held: dict[str, str] = {}
    for tensor in checkpoint.tensors:
        first = held.setdefault(tensor.name, tensor.path.name)
        if first != tensor.path.name:
            both = f"both `{first}` and `{tensor.path.name}` have the tensor `{tensor.name}`"
            raise CheckpointError(both, hint=DOWNLOAD)
    for name, file in (checkpoint.index or {"weight_map": held})["weight_map"].items():
        if held.get(name) != file:
            missing = f"`{INDEX}` lists the tensor `{name}` in `{file}`, which does not have it"
            raise CheckpointError(missing, hint=DOWNLOAD)


def architecture(config: dict[str, Any]) -> str:
    """The architecture of a config, for messages."""
    listed = config.get("architectures")
    name = listed[0] if isinstance(listed, list) and listed else None
    return f"the architecture {name}" if isinstance(name, str) else "the architecture"


def known_architecture(config: dict[str, Any]) -> str | None:
    """The class of a model that is in the table; without `architectures`, its type, such as `bert`."""
    listed, kind = config.get("architectures"), config.get("model_type")
    names = [name for name in listed if isinstance(name, str)] if isinstance(listed, list) else []
    if not names and isinstance(kind, str):
        names = [kind]
    return next((name for name in names if family_of(name)), None)


def family_of(name: str) -> str:
    """The family of a class or a type of models; empty if it is not in the table.

    >>> family_of("LlamaForCausalLM"), family_of("BertForMaskedLM"), family_of("m2m_100"), family_of("BertCrf")
    ('llama', 'encoder', 'encoder-decoder', '')
    """
    table = architecture_table()
    by_type = {prefix.lower(): family for prefix, family in table["prefixes"].items()}
    prefix = re.fullmatch(r"(\w+?)((Encoder|LMHead|MT)?Model|For[A-Z]\w*)", name)
    found = table["architectures"].get(name) or (table["prefixes"].get(prefix[1]) if prefix else None)
    return str(found or by_type.get(re.sub("[-_]", "", name), ""))


@cache
def architecture_table() -> dict[str, Any]:
    """The content of `architectures.json`."""
    text = resources.files("tokengraft.checkpoint").joinpath("architectures.json").read_text(encoding="utf-8")
    table: dict[str, Any] = json.loads(text)
    return table


def further_role(name: str) -> Role | None:
    """The role of a table beside embedding and output: of multi-token prediction (DeepSeek-V3), or for each layer."""
    patterns: dict[Role, list[str]] = architecture_table()["further"]
    return next((role for role, some in patterns.items() for one in some if re.fullmatch(one, name)), None)


def class_with_encoder(config: dict[str, Any]) -> str:
    """The class in transformers of an encoder or encoder-decoder in the table; empty for other models."""
    known = known_architecture(config)
    if known is None or family_of(known) not in (ENCODER, ENCODER_DECODER):
        return ""
    return "AutoModel" if known == config.get("model_type") else known


def generates(config: dict[str, Any]) -> bool:
    """Whether a model generates text: false for encoders, and classes of encoder-decoders without a head for tokens.

    >>> [generates({"architectures": [name]}) for name in ("LlamaModel", "BertForMaskedLM", "MarianMTModel")]
    [True, False, True]
    """
    known = class_with_encoder(config)
    return not known or known.endswith(("ForCausalLM", "LMHeadModel", "MTModel", "ForConditionalGeneration"))


def predicts_tokens(config: dict[str, Any]) -> bool:
    """Whether a model generates text and has a head for tokens: false for `LlamaModel`, which other models are made of.

    >>> [predicts_tokens({"architectures": [name]}) for name in ("LlamaForCausalLM", "LlamaModel", "GPT2LMHeadModel")]
    [True, False, True]
    """
    listed = config.get("architectures")
    names = [str(name) for name in listed] if isinstance(listed, list) else []
    without_head = [name for name in names if re.fullmatch(r".*(?<!LMHead)(?<!MT)Model", name)]
    return generates(config) and not (names and without_head == names)


def initializer_range(config: dict[str, Any]) -> float:
    """The standard deviation of a model's initial weights, from its config; 0.02 if the config has none."""
    spread = config.get("initializer_range")
    return float(spread) if isinstance(spread, int | float) and 0 < spread <= sys.float_info.max else 0.02
