"""Opens a checkpoint folder (`open_checkpoint`) and finds its tensors with a vocabulary axis (`find_vocabulary`).

Reads headers, and tables only if that is the only way to know whether they are tied. Nothing is unpickled, and no code
of the folder is executed.
"""

import json
import os
import re
from collections.abc import Callable, Iterator
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
ENCODER, ENCODER_DECODER = "encoder", "encoder-decoder"
"""Families of architectures.json whose classes differ in their heads only."""
_DECODERS = ("llama", "gpt2", "bloom", "opt")
"""Families whose modules have the names of their tensors in every version of transformers. The head of GPT-NeoX was
`embed_out` before version 5, and paths in multimodal models have changed several times."""
INDEX = "model.safetensors.index.json"
SINGLE = "model.safetensors"
OTHER_WEIGHTS = (".bin", ".pt", ".pth", ".ckpt", ".gguf", ".ggml", ".onnx", ".h5", ".msgpack", ".safetensors")
_ADAPTER = ("adapter_config.json", "adapter_model.safetensors", "adapter_model.bin")
_PICKLED = (".bin", ".pt", ".pth", ".ckpt")
_TRAINING = ("training_args", "optimizer", "scheduler", "rng_state", "scaler")
"""Prefixes of files of a training run that have the suffixes of weights."""
_QUANTISED = ("qweight", "qzeros", "scales", "weight_scale", "weight_scale_inv", "absmax", "weight.absmax")
_INPUT_NAMES = ("embed", "wte", "word_embeddings", "emb.")
_OUTPUT_NAMES = ("lm_head", "embed_out", "output.", "head.")
_DOWNLOAD = "download the checkpoint again"
_REPORT = "please report the architecture, with the names and shapes of its tensors"
_UNQUANTISED = "transplant the unquantised model (bf16, f16 or f32) and quantise the result"


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
    def tensors(self) -> Iterator[tuple[TensorInfo, TensorFile]]:
        """All tensors, with their files."""
        return ((tensor, file) for file in self.files for tensor in file.tensors.values())


@dataclass(frozen=True)
class VocabTensor:
    """A tensor whose first axis is the vocabulary."""

    info: TensorInfo
    file: TensorFile
    role: Role
    further: bool = False
    """Whether it is a table beside the embedding and the output, such as those of multi-token prediction, or a copy of
    one that is stored twice. It may have fewer rows, if it is for the first ids only."""


SameRows = Callable[[VocabTensor, VocabTensor], bool]
"""Whether two tables have the same rows."""


@dataclass(frozen=True)
class Vocabulary:
    """The tensors of a checkpoint that have a vocabulary axis."""

    tensors: tuple[VocabTensor, ...]
    rows: int
    tied: bool
    """Whether input and output are tied: one tensor, or two with equal rows that must stay equal."""
    found_by: str
    """How the tensors were found: by the names of an architecture, or by their shapes."""

    @property
    def shorter(self) -> list[int]:
        """The numbers of rows of tables that are for the first ids only."""
        return [tensor.info.rows for tensor in self.tensors if tensor.info.rows < self.rows]


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
        what, hint = f"`{folder}` lacks `{name}`", _DOWNLOAD
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
    for tensor, holder in checkpoint.tensors:
        first = held.setdefault(tensor.name, holder.path.name)
        if first != holder.path.name:
            both = f"both `{first}` and `{holder.path.name}` have the tensor `{tensor.name}`"
            raise CheckpointError(both, hint=_DOWNLOAD)
    for name, file in (checkpoint.index or {"weight_map": held})["weight_map"].items():
        if held.get(name) != file:
            missing = f"`{INDEX}` lists the tensor `{name}` in `{file}`, which does not have it"
            raise CheckpointError(missing, hint=_DOWNLOAD)


def find_vocabulary(checkpoint: Checkpoint, same_rows: SameRows | None = None) -> Vocabulary:
    """The tensors with a vocabulary axis, by the table of architectures, or by their shapes.

    ``checkpoint`` may describe a model in memory. By default, ``same_rows`` compares tables in their files.
    """
    config, size = checkpoint.config, checkpoint.text_config.get("vocab_size")
    known = _known_architecture(config)
    if config.get("is_encoder_decoder") and not (known and _family(known) == ENCODER_DECODER):
        names = ", ".join(name for name, family in _architectures()["prefixes"].items() if family == ENCODER_DECODER)
        raise CheckpointError(
            f"{architecture(config)} is an encoder-decoder that is not supported",
            hint=f"pass another model; the encoder-decoders that are supported are {names}",
        )
    sizes = config.get("vocab_size"), config.get("decoder_vocab_size")
    if config.get("share_encoder_decoder_embeddings") is False or (sizes[1] is not None and sizes[0] != sizes[1]):
        raise CheckpointError(  # Marian
            f"{architecture(config)} has two vocabularies, of {sizes[0]} and {sizes[1]} tokens: one for its encoder "
            "and one for its decoder (`share_encoder_decoder_embeddings`), which is not supported",
            hint="pass a model in which encoder and decoder share a vocabulary",
        )
    if size is not None and type(size) is not int:
        what = "text, not a number" if isinstance(size, str) else "not a whole number"
        raise CheckpointError(
            f"`vocab_size` in config.json is {size!r:.80}, which is {what}",
            hint="correct `vocab_size` in config.json: the number of rows of the embedding, without quotation marks",
        )
    _refuse_strange_tables(checkpoint)
    found_by = f"the names of {known}" if known else f"their shapes: {architecture(config)} is not in the table"
    vocabulary = _checked(checkpoint, vocabulary_tensors(checkpoint), found_by, same_rows or same_bytes)
    listed = {tensor.info.name for tensor in vocabulary.tensors}
    others = ((tensor.name, tensor.shape) for tensor, _ in checkpoint.tensors if tensor.name not in listed)
    require_no_other_tables(others, vocabulary.rows, config)
    return vocabulary


def architecture(config: dict[str, Any]) -> str:
    """The architecture of a config, for messages."""
    listed = config.get("architectures")
    name = listed[0] if isinstance(listed, list) and listed else None
    return f"the architecture {name}" if isinstance(name, str) else "the architecture"


def vocabulary_tensors(checkpoint: Checkpoint) -> list[VocabTensor]:
    """The tensors with a vocabulary axis, not checked: by the table of architectures, or by their shapes."""
    known = _known_architecture(checkpoint.config)
    tensors = _by_name(checkpoint, _family(known)) if known else _by_shape(checkpoint)
    further = ((tensor, file, _further_role(tensor.name)) for tensor, file in checkpoint.tensors)
    return tensors + [VocabTensor(tensor, file, role, True) for tensor, file, role in further if role]


def _further_role(name: str) -> Role | None:
    """The role of a table beside embedding and output: of multi-token prediction (DeepSeek-V3), or for each layer."""
    patterns: dict[Role, list[str]] = _architectures()["further"]
    return next((role for role, some in patterns.items() for one in some if re.fullmatch(one, name)), None)


def _known_architecture(config: dict[str, Any]) -> str | None:
    """The class of a model that is in the table; without `architectures`, its type, such as `bert`."""
    listed, kind = config.get("architectures"), config.get("model_type")
    names = [name for name in listed if isinstance(name, str)] if isinstance(listed, list) else []
    if not names and isinstance(kind, str):
        names = [kind]
    return next((name for name in names if _family(name)), None)


def class_with_encoder(config: dict[str, Any]) -> str:
    """The class in transformers of an encoder or encoder-decoder in the table; empty for other models."""
    known = _known_architecture(config)
    if known is None or _family(known) not in (ENCODER, ENCODER_DECODER):
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


def _family(name: str) -> str:
    """The family of a class or a type of models; empty if it is not in the table.

    >>> _family("LlamaForCausalLM"), _family("BertForMaskedLM"), _family("m2m_100"), _family("BertCrf")
    ('llama', 'encoder', 'encoder-decoder', '')
    """
    table = _architectures()
    by_type = {prefix.lower(): family for prefix, family in table["prefixes"].items()}
    prefix = re.fullmatch(r"(\w+?)((Encoder|LMHead|MT)?Model|For[A-Z]\w*)", name)
    found = table["architectures"].get(name) or (table["prefixes"].get(prefix[1]) if prefix else None)
    return str(found or by_type.get(re.sub("[-_]", "", name), ""))


@cache
def _architectures() -> dict[str, Any]:
    text = resources.files("tokengraft.checkpoint").joinpath("architectures.json").read_text(encoding="utf-8")
    table: dict[str, Any] = json.loads(text)
    return table


def module_path(tensor: VocabTensor, config: dict[str, Any]) -> str | None:
    """The path of a table's module in the model's class of transformers; None if it is not known for certain.

    >>> table = VocabTensor(TensorInfo("wte.weight", "F32", (9, 4), 0, 144), None, "input")
    >>> module_path(table, {"architectures": ["GPT2LMHeadModel"]}), module_path(table, {"architectures": ["Other"]})
    ('transformer.wte', None)
    """
    family = _family(_known_architecture(config) or "")
    names = _architectures()["families"][family][tensor.role] if family in _DECODERS else []
    # The first name has the prefix that files of the model without its head lack.
    return str(names[0]).removesuffix(".weight") if tensor.info.name in names else None


def _by_name(checkpoint: Checkpoint, family: str) -> list[VocabTensor]:
    held = {tensor.name: (tensor, file) for tensor, file in checkpoint.tensors}
    wanted: dict[Role, list[str]] = _architectures()["families"][family]
    found = {role: [name for name in names if name in held] for role, names in wanted.items()}
    stored_twice = family in (ENCODER, ENCODER_DECODER)  # tied tables, by older versions of transformers
    return [
        VocabTensor(*held[name], role, further=stored_twice and name != names[0])
        for role, names in found.items()
        for name in names
    ]


def _by_shape(checkpoint: Checkpoint) -> list[VocabTensor]:
    """Tensors whose first axis is as long as the vocabulary, with roles by their names."""
    size = checkpoint.text_config.get("vocab_size")
    candidates = []
    for tensor, file in checkpoint.tensors:
        if type(size) is int and re.search(r"(^|\.)lm_head\.weight$", tensor.name) and tensor.shape[:1] != (size,):
            raise CheckpointError(
                f"`{tensor.name}` has {tensor.rows:,} rows, and `vocab_size` is {size}: "
                f"{architecture(checkpoint.config)} is unknown, and may have an output for other things than tokens",
                hint=_REPORT,
            )
        if type(size) is not int or size not in tensor.shape or _further_role(tensor.name):
            continue
        is_output = any(part in tensor.name for part in _OUTPUT_NAMES)
        role: Role | None = None
        if len(tensor.shape) == 1:
            role = "bias" if is_output and tensor.name.endswith("bias") else None
        elif len(tensor.shape) == 2:
            is_input = any(part in tensor.name for part in _INPUT_NAMES)
            role = "output" if is_output else "input" if is_input else None
        if role is None or tensor.shape[0] != size:
            raise CheckpointError(
                f"the tensor `{tensor.name}` has an axis of {size:,}, as long as the vocabulary, and "
                f"{architecture(checkpoint.config)} is unknown: its role cannot be determined",
                hint=_REPORT,
            )
        candidates.append(VocabTensor(tensor, file, role))
    return candidates


def _checked(checkpoint: Checkpoint, tensors: list[VocabTensor], found_by: str, same_rows: SameRows) -> Vocabulary:
    main = [tensor for tensor in tensors if not tensor.further]
    by_role = {tensor.role: tensor for tensor in main}
    if "input" not in by_role or len(by_role) < len(main):
        names = ", ".join(f"`{tensor.info.name}`" for tensor in tensors) or "none"
        raise CheckpointError(f"expected one input embedding, by {found_by}; found: {names}", hint=_REPORT)
    for tensor in tensors:
        shape = tensor.info.shape[1:] if tensor.role == "bias" and tensor.info.is_flat else tensor.info.shape
        if len(shape) != (1 if tensor.role == "bias" else 2) or not tensor.info.size:
            raise CheckpointError(
                f"`{tensor.info.name}` has the shape {tensor.info.shape}, which is not that of a table of tokens",
                hint=_DOWNLOAD,
            )
    rows = by_role["input"].info.rows
    for tensor in tensors:
        _require_plain(tensor, rows, checkpoint)
    # Without an output, it is tied. With one, it is if the rows are equal and the config does not say otherwise:
    # transformers 5 unties tables that differ, whatever the config says.
    says_tied = checkpoint.config.get("tie_word_embeddings", checkpoint.text_config.get("tie_word_embeddings"))
    tied = "output" not in by_role or (
        (says_tied is None or bool(says_tied)) and same_rows(by_role["input"], by_role["output"])
    )
    order: dict[Role, int] = {"input": 0, "output": 1, "bias": 2}
    ordered = tuple(sorted(tensors, key=lambda tensor: (tensor.further, order[tensor.role])))
    return Vocabulary(ordered, rows, tied, found_by)


def same_bytes(first: VocabTensor, second: VocabTensor) -> bool:
    """Whether two tables have the same bytes."""
    size = first.info.size
    with first.file.path.open("rb", buffering=0) as one, second.file.path.open("rb", buffering=0) as other:
        return size == second.info.size and equal_bytes(one, first.info.start, other, second.info.start, size)


def _require_plain(tensor: VocabTensor, rows: int, checkpoint: Checkpoint) -> None:
    info = tensor.info
    base = info.name.removesuffix("weight")
    scales = [name for name in tensor.file.tensors if name.startswith(base) and name[len(base) :] in _QUANTISED]
    if info.dtype == "F64":
        raise CheckpointError(
            f"`{info.name}` is of the type F64; expected BF16, F16 or F32",
            hint="save the model with shorter numbers: `model.float().save_pretrained('NEW')`",
        )
    if info.dtype not in ITEM_BYTES or scales:
        raise CheckpointError(
            f"`{info.name}` is of the type {info.dtype}{', with ' + scales[0] if scales else ''}: it is quantised",
            hint=_UNQUANTISED,
        )
    # A table for each layer may be for the first ids only.
    per_layer, held = tensor.further and PER_LAYER in info.name, info.rows
    field = PER_LAYER_SIZE if per_layer else "vocab_size"
    size = checkpoint.text_config.get(field)
    fits = held == size and held <= rows if per_layer else held == rows and size in (None, rows)
    if not fits:
        raise CheckpointError(
            f"`{info.name}` has {held:,} rows, the input embedding {rows:,}, and `{field}` in config.json is {size}",
            hint="save the model again with transformers, which makes them agree",
        )


def _refuse_strange_tables(checkpoint: Checkpoint) -> None:
    for tensor, _ in checkpoint.tensors:
        name = tensor.name
        if "embed" in name and "per_layer" in name and not _further_role(name):
            raise CheckpointError(
                f"the model has a table of tokens for each layer (`{name}`), which is not supported",
                hint="pass a model with one input embedding",
            )
        if any(name.endswith(f"{head}.{part}") for head in ("lm_head", "embed_tokens") for part in _QUANTISED):
            raise CheckpointError(f"`{name}` belongs to a quantised table of tokens", hint=_UNQUANTISED)
