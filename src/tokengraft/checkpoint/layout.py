"""Finds the tensors of a checkpoint with a vocabulary axis (`find_vocabulary`), and refuses what cannot follow.

Reads headers, and tables only if that is the only way to know whether they are tied.

Medusa and EAGLE heads have their own tables, and are refused. Those of multi-token prediction in DeepSeek-V3, and for
each layer in Gemma-3n, are known by their names. Some models fix ids: see `require_fixed_ids`.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tokengraft.checkpoint.folder import (
    DOWNLOAD,
    ENCODER,
    ENCODER_DECODER,
    Checkpoint,
    Role,
    architecture,
    architecture_table,
    family_of,
    further_role,
    known_architecture,
)
from tokengraft.checkpoint.ids import Renumbering, config_numbers
from tokengraft.checkpoint.tensors import ITEM_BYTES, Tensor, same_bytes
from tokengraft.errors import CheckpointError

PER_LAYER, PER_LAYER_SIZE = "embed_tokens_per_layer", "vocab_size_per_layer_input"
_DECODERS = ("llama", "gpt2", "bloom", "opt")
"""Families whose modules have the names of their tensors in every version of transformers. The head of GPT-NeoX was
`embed_out` before version 5, and paths in multimodal models have changed several times."""
_QUANTISED = ("qweight", "qzeros", "scales", "weight_scale", "weight_scale_inv", "absmax", "weight.absmax")
_INPUT_NAMES = ("embed", "wte", "word_embeddings", "emb.")
_OUTPUT_NAMES = ("lm_head", "embed_out", "output.", "head.")
_REPORT = "please report the architecture, with the names and shapes of its tensors"
_UNQUANTISED = "transplant the unquantised model (bf16, f16 or f32) and quantise the result"


@dataclass(frozen=True)
class VocabTensor(Tensor):
    """A tensor whose first axis is the vocabulary."""

    role: Role = "input"
    further: bool = False
    """Whether it is a table beside the embedding and the output, such as those of multi-token prediction, or a copy of
    one that is stored twice. It may have fewer rows, if it is for the first ids only."""

    @classmethod
    def of(cls, tensor: Tensor, role: Role, further: bool = False) -> "VocabTensor":
        """A tensor in a role."""
        return cls(**vars(tensor) | {"role": role, "further": further})


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
        return [tensor.rows for tensor in self.tensors if tensor.rows < self.rows]


def find_vocabulary(checkpoint: Checkpoint) -> Vocabulary:
    """The tensors with a vocabulary axis, by the table of architectures, or by their shapes."""
    config, size = checkpoint.config, checkpoint.text_config.get("vocab_size")
    known = known_architecture(config)
    if config.get("is_encoder_decoder") and not (known and family_of(known) == ENCODER_DECODER):
        names = ", ".join(
            name for name, family in architecture_table()["prefixes"].items() if family == ENCODER_DECODER
        )
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
    vocabulary = _checked(checkpoint, vocabulary_tensors(checkpoint), found_by)
    listed = {tensor.name for tensor in vocabulary.tensors}
    others = ((tensor.name, tensor.shape) for tensor in checkpoint.tensors if tensor.name not in listed)
    require_no_other_tables(others, vocabulary.rows, config)
    return vocabulary


def vocabulary_tensors(checkpoint: Checkpoint) -> list[VocabTensor]:
    """The tensors with a vocabulary axis, not checked: by the table of architectures, or by their shapes."""
    known = known_architecture(checkpoint.config)
    tensors = _by_name(checkpoint, family_of(known)) if known else _by_shape(checkpoint)
    further = ((tensor, further_role(tensor.name)) for tensor in checkpoint.tensors)
    return tensors + [VocabTensor.of(tensor, role, True) for tensor, role in further if role]


def module_path(tensor: VocabTensor, config: dict[str, Any]) -> str | None:
    """The path of a table's module in the model's class of transformers; None if it is not known for certain.

    >>> table = VocabTensor("wte.weight", "F32", (9, 4), 0, 144)
    >>> module_path(table, {"architectures": ["GPT2LMHeadModel"]}), module_path(table, {"architectures": ["Other"]})
    ('transformer.wte', None)
    """
    family = family_of(known_architecture(config) or "")
    names = architecture_table()["families"][family][tensor.role] if family in _DECODERS else []
    # The first name has the prefix that files of the model without its head lack.
    return str(names[0]).removesuffix(".weight") if tensor.name in names else None


def _by_name(checkpoint: Checkpoint, family: str) -> list[VocabTensor]:
    held = {tensor.name: tensor for tensor in checkpoint.tensors}
    wanted: dict[Role, list[str]] = architecture_table()["families"][family]
    found = {role: [name for name in names if name in held] for role, names in wanted.items()}
    stored_twice = family in (ENCODER, ENCODER_DECODER)  # tied tables, by older versions of transformers
    return [
        VocabTensor.of(held[name], role, stored_twice and name != names[0])
        for role, names in found.items()
        for name in names
    ]


def _by_shape(checkpoint: Checkpoint) -> list[VocabTensor]:
    """Tensors whose first axis is as long as the vocabulary, with roles by their names."""
    size = checkpoint.text_config.get("vocab_size")
    candidates = []
    for tensor in checkpoint.tensors:
        if type(size) is int and re.search(r"(^|\.)lm_head\.weight$", tensor.name) and tensor.shape[:1] != (size,):
            raise CheckpointError(
                f"`{tensor.name}` has {tensor.rows:,} rows, and `vocab_size` is {size}: "
                f"{architecture(checkpoint.config)} is unknown, and may have an output for other things than tokens",
                hint=_REPORT,
            )
        if type(size) is not int or size not in tensor.shape or further_role(tensor.name):
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
        candidates.append(VocabTensor.of(tensor, role))
    return candidates


def _checked(checkpoint: Checkpoint, tensors: list[VocabTensor], found_by: str) -> Vocabulary:
    main = [tensor for tensor in tensors if not tensor.further]
    by_role = {tensor.role: tensor for tensor in main}
    if "input" not in by_role or len(by_role) < len(main):
        names = ", ".join(f"`{tensor.name}`" for tensor in tensors) or "none"
        raise CheckpointError(f"expected one input embedding, by {found_by}; found: {names}", hint=_REPORT)
    for tensor in tensors:
        shape = tensor.shape[1:] if tensor.role == "bias" and tensor.is_flat else tensor.shape
        if len(shape) != (1 if tensor.role == "bias" else 2) or not tensor.size:
            raise CheckpointError(
                f"`{tensor.name}` has the shape {tensor.shape}, which is not that of a table of tokens",
                hint=DOWNLOAD,
            )
    rows = by_role["input"].rows
    for tensor in tensors:
        _require_plain(tensor, rows, checkpoint)
    # Without an output, it is tied. With one, it is if the rows are equal and the config does not say otherwise:
    # transformers 5 unties tables that differ, whatever the config says.
    says_tied = checkpoint.config.get("tie_word_embeddings", checkpoint.text_config.get("tie_word_embeddings"))
    tied = "output" not in by_role or (
        (says_tied is None or bool(says_tied)) and same_bytes(by_role["input"], by_role["output"])
    )
    order: dict[Role, int] = {"input": 0, "output": 1, "bias": 2}
    ordered = tuple(sorted(tensors, key=lambda tensor: (tensor.further, order[tensor.role])))
    return Vocabulary(ordered, rows, tied, found_by)


def _require_plain(tensor: VocabTensor, rows: int, checkpoint: Checkpoint) -> None:
    base = tensor.name.removesuffix("weight")
    scales = [other.name for other in checkpoint.tensors if other.name in {base + part for part in _QUANTISED}]
    if tensor.dtype == "F64":
        raise CheckpointError(
            f"`{tensor.name}` is of the type F64; expected BF16, F16 or F32",
            hint="save the model with shorter numbers: `model.float().save_pretrained('NEW')`",
        )
    if tensor.dtype not in ITEM_BYTES or scales:
        raise CheckpointError(
            f"`{tensor.name}` is of the type {tensor.dtype}{', with ' + scales[0] if scales else ''}: it is quantised",
            hint=_UNQUANTISED,
        )
    # A table for each layer may be for the first ids only.
    per_layer, held = tensor.further and PER_LAYER in tensor.name, tensor.rows
    field = PER_LAYER_SIZE if per_layer else "vocab_size"
    size = checkpoint.text_config.get(field)
    fits = held == size and held <= rows if per_layer else held == rows and size in (None, rows)
    if not fits:
        raise CheckpointError(
            f"`{tensor.name}` has {held:,} rows, the input embedding {rows:,}, and `{field}` in config.json is {size}",
            hint="save the model again with transformers, which makes them agree",
        )


def _refuse_strange_tables(checkpoint: Checkpoint) -> None:
    for name in (tensor.name for tensor in checkpoint.tensors):
        if "embed" in name and "per_layer" in name and not further_role(name):
            raise CheckpointError(
                f"the model has a table of tokens for each layer (`{name}`), which is not supported",
                hint="pass a model with one input embedding",
            )
        if any(name.endswith(f"{head}.{part}") for head in ("lm_head", "embed_tokens") for part in _QUANTISED):
            raise CheckpointError(f"`{name}` belongs to a quantised table of tokens", hint=_UNQUANTISED)


_TABLE = re.compile(
    r"(^|[._])(embed_tokens|tok_embeddings|word_embeddings|wte|embed_in|embed_out|lm_head|shared_head|output"
    r"|medusa|eagle|mtp|nextn|t2d|d2t)([._]|$)"
)
_ALWAYS = re.compile(r"(^|\.)(embed_tokens_per_layer\.weight|d2t)$")
"""Tables that may have another number of rows, and tables whose numbers are ids."""
_POSITIONS_FROM_PADDING = frozenset(
    (
        *("camembert", "data2vec-text", "esm", "ibert", "kosmos-2", "kosmos-2.5", "layoutlmv3", "lilt", "longformer"),
        *("luke", "m2m_100", "markuplm", "mpnet", "roberta", "roberta-prelayernorm", "trocr", "xglm", "xlm-roberta"),
        *("xlm-roberta-xl", "xmod"),
    )
)
"""Types of models in transformers that compute positions from `pad_token_id`."""
_FACTORS = {2, 3, 4}
"""Factors of fused and default sizes: gate and up; query, key and value; the inner size of GPT-2."""


def require_no_other_tables(
    tensors: Iterable[tuple[str, tuple[int, ...]]], rows: int, config: Mapping[str, Any]
) -> None:
    """Refuses a model in which one of these tensors, given by name and shape, has an axis as long as the vocabulary.

    An axis may have that length by accident, because the hidden size or another size in the config is equal. Such a
    tensor is refused only if its name is that of a table of tokens.
    """
    by_accident = _is_size(rows, {*config_numbers(config)})
    names = [
        f"`{name}` {list(shape)}"
        for name, shape in tensors
        if _ALWAYS.search(name) or (rows in shape and not (by_accident and not _TABLE.search(name)))
    ]
    if names:
        more = f" and {len(names) - 3:,} more" if len(names) > 3 else ""
        raise CheckpointError(
            f"{len(names):,} other tensors have an axis of {rows:,}, as long as the vocabulary, or name ids: "
            f"{', '.join(names[:3])}{more}. They are not supported: they would no longer match the vocabulary",
            hint="pass a checkpoint without them, for example without its heads for multi-token prediction; "
            "otherwise please report the architecture, with the names and shapes of its tensors",
        )


def require_fixed_ids(shorter: Iterable[int], config: Mapping[str, Any], renumbering: Renumbering) -> None:
    """Refuses a plan that changes ids which the model has fixed.

    Gemma-3n takes the ids from `vocab_offset` on for images and sound, and has a table for each layer that ends there:
    ``shorter`` has the rows of such tables. Other models have such ids too: see `_offsets`. Tokens below may be
    replaced by others. RoBERTa computes positions from the id of padding. Whisper computes the ids of timestamps from
    that of the token before them.
    """
    _require_fixed_padding(config, renumbering)
    _require_timestamps(config, renumbering)
    plan, rows, ends = renumbering.plan, renumbering.rows, [*shorter]
    first = fixed_from(config, rows[0], ends)
    if first is None:
        return
    moved = any(old != new and max(old, new) >= first for old, new in plan.moved.items())
    new = any(isinstance(source, tuple) for source in plan.sources[first:])
    pieces = (row for source in plan.sources if isinstance(source, tuple) for row in source)
    lacking = any(row >= min(ends) for row in pieces) if ends else False
    if rows[0] != rows[1] or moved or new or lacking or any(row >= first for row in plan.removed):
        raise changes_fixed_ids(first)


def fixed_from(config: Mapping[str, Any], rows: int, shorter: Iterable[int] = ()) -> int | None:
    """The first id that a model uses for other things than text; None if there is none, or it is not known."""
    return min([*shorter, *_offsets(config, rows)], default=None)


def changes_fixed_ids(first: int) -> CheckpointError:
    """The error for a plan that changes ids from ``first`` on, or the number of rows."""
    return CheckpointError(
        f"the model uses the ids from {first:,} on for other things than text, and the plan changes them or the number "
        "of rows",
        hint="replace tokens without changing other ids: `tokengraft adapt --swap N`",
    )


def _require_fixed_padding(config: Mapping[str, Any], renumbering: Renumbering) -> None:
    kind, padding = config.get("model_type"), config.get("pad_token_id")
    if not isinstance(kind, str) or kind not in _POSITIONS_FROM_PADDING or type(padding) is not int:
        return
    new = renumbering.new_id(padding, "pad_token_id", "config.json")
    if new != padding:
        raise CheckpointError(
            f"models of the type {kind} compute positions from `pad_token_id`, which is {padding:,}, and the plan "
            f"moves that token to {new:,}",
            hint="keep its id: use `tokengraft prune --ids keep`, or replace tokens with `tokengraft adapt --swap N`",
        )


def _require_timestamps(config: Mapping[str, Any], renumbering: Renumbering) -> None:
    """Refuses a plan after which the ids of Whisper's languages, tasks and timestamps no longer follow each other."""
    start = config.get("decoder_start_token_id")
    if config.get("model_type") != "whisper" or type(start) is not int:
        return
    new = [renumbering.moved.get(token_id) for token_id in range(start, renumbering.rows[0])]
    first = new[0] if new else None
    added = first is not None and any(isinstance(source, tuple) for source in renumbering.plan.sources[first:])
    if new and (added or first is None or new != [*range(first, first + len(new))]):
        raise CheckpointError(
            f"models of the type whisper use the ids from {start:,} on for languages, tasks and timestamps, one after "
            "the other, and the plan adds tokens there, removes some or changes their order",
            hint="keep all ids: use `tokengraft adapt --swap N` or `tokengraft prune --ids keep`. They can move if the "
            "tokenizer has tokens for all rows from there on, timestamps (`<|0.00|>` to `<|30.00|>`) included",
        )


def _offsets(config: Mapping[str, Any], rows: int) -> Iterator[int]:
    """The first ids of other things than text, by the fields of a config.

    Gemma-3n and Kimi-Audio name them. Idefics and Molmo have a second table for the ids after the rows of the first.
    OpenVLA takes the last ids before its padding for actions.

    >>> [*_offsets({"n_action_bins": 256, "pad_to_multiple_of": 64}, 32064)]
    [31744]
    """
    for key, value in config.items():
        if isinstance(value, Mapping):
            yield from _offsets(value, rows)
        elif type(value) is not int:
            continue
        elif key in ("vocab_offset", "kimia_token_offset"):
            yield value
        elif key == "additional_vocab_size" and value > 0:
            yield rows
        elif key == "n_action_bins":
            padding = config.get("pad_to_multiple_of")
            yield rows - value - (padding if type(padding) is int else 0)


def _is_size(rows: int, numbers: set[int]) -> bool:
    """Whether a number is one of these, or a product of two of them.

    >>> _is_size(96, {32}), _is_size(96, {12, 8}), _is_size(97, {32})
    (True, True, False)
    """
    return rows in numbers or any(
        number > 1 and rows % number == 0 and rows // number in numbers | _FACTORS for number in numbers
    )
