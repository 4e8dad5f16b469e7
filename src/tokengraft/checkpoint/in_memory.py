"""`transplant_model`: a model in memory with the rows of a new vocabulary.

`compare_models`: runs two models on sequences of kept tokens and compares their logits. Needs torch and transformers.
"""

import random
from collections.abc import Collection, Hashable, Iterator, Mapping
from dataclasses import replace
from functools import cache, partial
from importlib import import_module
from inspect import signature
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tokengraft.checkpoint.folder import Checkpoint, class_with_encoder, initializer_range, predicts_tokens
from tokengraft.checkpoint.ids import (
    CONFIG,
    FROM_MODEL,
    SUPPRESSED,
    TOKEN_MAP,
    Renumbering,
    id_fields,
    is_id_or_size,
    read_config,
    suppressing,
)
from tokengraft.checkpoint.layout import VocabTensor, Vocabulary, find_vocabulary, require_fixed_ids
from tokengraft.checkpoint.rows import Init, unused_rows
from tokengraft.checkpoint.table import NewTables, TransplantOptions, renumbering_of, require_absent
from tokengraft.checkpoint.tensors import Raw, Tensor, TensorFile
from tokengraft.errors import CheckpointError, OptionError, option, require_type, wrong_type
from tokengraft.progress import stage
from tokengraft.vocab_plan import Source, VocabPlan

if TYPE_CHECKING:
    import torch


_WRAPPED = ("base_layer", "original_module")
"""Attributes of modules that PEFT puts around others: adapters, and modules or tokens that are trained as copies."""


def _tables(model: Any) -> "tuple[Checkpoint, Vocabulary, dict[str, torch.Tensor]]":
    """A transformers model as it would be saved, the tables that `transplant` would find in it, and their tensors."""
    _require_plain_tables(model.get_input_embeddings(), model.get_output_embeddings())
    saved, found = model.state_dict().keys(), dict[Hashable, tuple[str, "torch.Tensor"]]()
    named = (model.named_parameters(remove_duplicate=False), model.named_buffers(remove_duplicate=False))
    for name, weight in chain(*named):
        if name in saved:  # tied ones are listed once
            found.setdefault(storage(weight), (name, weight))
    weights, names, tensors = dict(found.values()), _names(), dict[str, Tensor]()
    for name, weight in weights.items():
        kind, size = names.get(weight.dtype, str(weight.dtype)), weight.numel() * weight.element_size()
        tensor = Tensor(name, kind, tuple(weight.shape), 0, size)
        tensors[name] = replace(tensor, data=cache(partial(_bytes, weight, tensor.rows)))
    config = model.config.to_dict() | {"architectures": [type(model).__name__]}
    checkpoint = Checkpoint(Path(), config, (TensorFile(Path(), tensors, None),), None)
    vocabulary = find_vocabulary(checkpoint)
    weights = {tensor.name: weights[tensor.name] for tensor in vocabulary.tensors}
    for name, weight in weights.items():
        _require_here(weight, f"`{name}`")
    return checkpoint, vocabulary, weights


def _bytes(weight: "torch.Tensor", rows: int) -> Raw:
    """The bytes of a table, by rows."""
    import torch

    found: Raw = weight.detach().cpu().contiguous().reshape(rows, -1).view(torch.uint8).numpy()
    return found


def storage(weight: "torch.Tensor") -> Hashable:
    """What tensors have in common that share their numbers."""
    try:
        return (weight.data_ptr() or id(weight)), tuple(weight.shape)
    except RuntimeError:  # a tensor of another kind, such as a quantised one
        return id(weight)


def without_adapters(model: Any) -> Any:
    """The model inside a PEFT or compiled model; other models as they are. Adapters inside it stay."""
    model = getattr(model, "_orig_mod", model)
    return model.get_base_model() if hasattr(model, "peft_config") and hasattr(model, "get_base_model") else model


def _require_plain_tables(embedding: Any, head: Any) -> None:
    """Refuses an embedding or a head whose rows cannot be replaced."""
    for what, module in (("embedding", embedding), ("head", head)):
        if any(hasattr(module, name) for name in _WRAPPED):
            raise CheckpointError(
                f"the model's {what} has an adapter ({type(module).__name__}), whose rows belong to the old vocabulary",
                hint="transplant the model before you add adapters to embedding or head, tokens that are trained "
                "(trainable_token_indices) and modules to save included",
            )
    if not hasattr(embedding, "weight") or embedding.weight.ndim != 2:
        raise CheckpointError("the model has no plain input embedding", hint="pass a model with one table of tokens")
    for what, weight in (("embedding", embedding.weight), ("head", getattr(head, "weight", None))):
        if weight is not None:
            _require_here(weight, f"the model's {what}")


def _names() -> dict[Any, str]:
    """The types of tables, as safetensors names them."""
    import torch

    return {torch.bfloat16: "BF16", torch.float16: "F16", torch.float32: "F32"}


def _require_here(weight: "torch.Tensor", what: str) -> None:
    """Refuses a table without its numbers, with a part of them, or of another type."""
    if weight.dtype not in _names():
        raise CheckpointError(
            f"{what} has the type {weight.dtype}, which is not supported",
            hint="load the model in bfloat16, float16 or float32",
        )
    if weight.device.type == "meta":
        raise CheckpointError(
            f"{what} is offloaded: its weights are on the device `meta`",
            hint="load the model with a device_map that keeps embedding and head on a device, or use "
            "`tokengraft transplant`, which does not load the model",
        )
    if hasattr(weight, "device_mesh"):
        raise CheckpointError(
            f"{what} is sharded over several devices", hint="transplant the model before it is sharded"
        )


_Change = tuple[Any, str, Any]
"""An object, one of its attributes, and the new value."""
_PADDING_INDEX = "padding_idx"
"""What modules call the id of padding."""
_TOKEN_MAPPING = "vocabulary_mapping"
"""What modules of Chameleon and Emu3 make from the `vocabulary_map` of their config."""


@stage("transplanting the model")
def transplant_model(
    model: Any,
    plan: VocabPlan,
    *,
    init: Init | None = None,
    options: TransplantOptions | None = None,
) -> tuple[Source, ...]:
    """Gives a transformers model another vocabulary, in place: its tables, and ids in its configs and modules.

    Accepts the models that `transplant` accepts, and gives the rows that it would write. Create optimizers afterwards:
    earlier ones hold the old parameters.

    Args:
        model: A `PreTrainedModel`, on any devices, or one wrapped by PEFT. It is changed. Its embedding and head must
            not be offloaded, and must not have adapters.
        plan: The plan from the old to the new vocabulary: ``tg.plan(old, new)``.
        init: Initialiser for new embedding rows, as for `transplant`.
        options: The other initialiser, rows without a token, padding and the seed, as for `transplant`.

    Returns:
        The source of every row of the embedding: an old row, the pieces it was computed from, or None for a row
        without a token that does not keep the row it had.

    Raises:
        OptionError: There is no such initialiser, it gives no row for each token, or one is given for a tied output.
        CheckpointError: The model is not supported, or a config or a module names a removed token.
    """
    require_type("plan", plan, VocabPlan)
    chosen = TransplantOptions.of(options, init)
    files = {"hard_link": chosen.hard_link, "verify": chosen.verify, "progress": chosen.progress}
    require_absent(files, "a model in memory")
    model = without_adapters(model)
    if not hasattr(model, "get_input_embeddings"):
        raise wrong_type(
            "`model` of `transplant_model`", model, ["a model of transformers; `transplant` takes folders"]
        )
    checkpoint, vocabulary, weights = _tables(model)
    before = vocabulary.rows
    if plan.rows_before > before:
        raise CheckpointError(
            f"the embedding has {before:,} rows and the old tokenizer needs {plan.rows_before:,}",
            hint="make the plan with the tokenizer that the model was trained with; if the last tokens have no rows, "
            f"as in Gemma-3's models for text, add them: `model.resize_token_embeddings({plan.rows_before})`",
        )
    renumbering = renumbering_of(plan, before, chosen.pad_multiple)
    require_fixed_ids(vocabulary.shorter, checkpoint.config, renumbering)
    # Everything that may fail is done before the first change.
    generation = _distinct(model, "generation_config")
    sized = ((config, getattr(config, "vocab_size", None)) for config in _distinct(model, "config"))
    # Others are copies of the config of the language model if they have its size.
    configs = [*(config for config, size in sized if config is model.config or size == before), *generation]
    fields = [field for config in configs for field in id_fields(_renumbered(config, renumbering))]
    unused = unused_rows(renumbering, chosen.hole_rows, fields)
    changes = [*_changes(model, configs, {*map(storage, weights.values())}, renumbering)]
    for config in generation if unused.suppressed else ():
        listed = {SUPPRESSED: getattr(config, SUPPRESSED, None)}
        listed |= {name: value for owner, name, value in changes if owner is config}
        ids = suppressing(listed, unused.suppressed)[SUPPRESSED]
        changes += [(config, SUPPRESSED, ids), (config, FROM_MODEL, False)]
    spread, has_output = initializer_range(checkpoint.text_config), predicts_tokens(checkpoint.config)
    new = NewTables(vocabulary, renumbering, chosen, unused, spread, has_output)
    pairs = zip(weights.values(), vocabulary.tensors, strict=True)
    parameters = {storage(weight): _parameter(weight, new, tensor) for weight, tensor in pairs}
    for module in model.modules():
        _replace_tables(module, parameters)
    for owner, name, value in changes:
        setattr(owner, name, value)
    made = (*plan.sources, *(None,) * (new.rows - plan.rows_after))
    return tuple(copy if copy >= 0 else source for copy, source in zip(new.copies.tolist(), made, strict=True))


def _parameter(weight: "torch.Tensor", tables: NewTables, tensor: VocabTensor) -> Any:
    """The new parameter or buffer that replaces an old one."""
    import torch

    table = torch.from_numpy(np.concatenate([*tables.parts(tensor)]))
    new = table.view(weight.dtype).reshape(tables.resized(tensor).shape).to(weight.device)
    is_parameter = isinstance(weight, torch.nn.Parameter)
    return torch.nn.Parameter(new, requires_grad=weight.requires_grad) if is_parameter else new


def _replace_tables(module: Any, parameters: Mapping[Hashable, Any]) -> None:
    """Gives a module the new tensors in the places of the old ones. Modules that share one share the new one."""
    for name, weight in [*module._parameters.items(), *module._buffers.items()]:
        new = None if weight is None else parameters.get(storage(weight))
        if new is not None:
            setattr(module, name, new)
            for size in ("num_embeddings", "out_features"):
                if hasattr(module, size):
                    setattr(module, size, len(new))


def _changes(model: Any, configs: list[Any], tables: Collection[Hashable], ids: Renumbering) -> Iterator[_Change]:
    """The changes of ids and sizes in everything that a model has beside its tables: (object, attribute, new value)."""
    for config in configs:
        yield from _config_changes(config, ids)
    for module in model.modules():
        name, attributes = type(module).__name__, vars(module)
        old = {key: value for key, value in attributes.items() if is_id_or_size(key)}
        if old:
            yield from ((module, key, value) for key, value in ids.config(old, name).items() if value != old[key])
        mapping = attributes.get(_TOKEN_MAPPING)
        if mapping is not None and mapping.vocab_map is not None:
            tokens = ids.config({TOKEN_MAP: mapping.vocab_map}, name)[TOKEN_MAP]
            yield module, _TOKEN_MAPPING, type(mapping)(tokens)
    # The ids of padding in embeddings of tokens, and in other modules that have the same id.
    found = [module for module in model.modules() if vars(module).get(_PADDING_INDEX) is not None]
    embeddings = [module for module in found if any(storage(w) in tables for w in module.parameters(recurse=False))]
    fields = (field for config in configs for field in id_fields(config.to_dict()))
    padding = {token_id for name, token_id in fields if name == "pad_token_id"} | {m.padding_idx for m in embeddings}
    for module in found:
        if module in embeddings or (module.padding_idx in padding and not hasattr(module, "num_embeddings")):
            yield module, _PADDING_INDEX, ids.moved.get(module.padding_idx)


def _distinct(model: Any, name: str) -> list[Any]:
    """The configs that modules of a model have under a name, each once, without parts of others."""
    found = {id(value): value for module in model.modules() if hasattr(value := getattr(module, name, None), "to_dict")}
    parts = {id(part) for value in found.values() for part in _parts(value)}
    return [value for key, value in found.items() if key not in parts]


def _parts(config: Any) -> Iterator[Any]:
    for value in vars(config).values():
        if hasattr(value, "to_dict"):
            yield value
            yield from _parts(value)


def _renumbered(config: Any, renumbering: Renumbering) -> dict[str, Any]:
    return renumbering.config(config.to_dict(), type(config).__name__)


def _config_changes(config: Any, renumbering: Renumbering) -> Iterator[_Change]:
    """The changes of ids and sizes in a config object: (object, field, new value)."""
    before = config.to_dict()
    for name, value in _renumbered(config, renumbering).items():
        if isinstance(value, dict) and hasattr(getattr(config, name, None), "to_dict"):
            yield from _config_changes(getattr(config, name), renumbering)
        elif value != before[name]:
            yield config, name, value


SEQUENCES, LENGTH, GENERATED = 8, 24, 8
TOLERANCE = 1e-3
PROMPT = "The"


class Behaviour(NamedTuple):
    """The comparison of two models."""

    sequences: int
    worst: float
    """The largest difference of a logit of a kept token, relative to the largest logit; of models without logits, that
    of their output."""
    old_text: str
    new_text: str
    """The text that each model generates from the same prompt; empty for models with an encoder."""


def require_torch(hint: str = "") -> None:
    """Refuses to run models if torch or transformers is not installed."""
    try:
        import_module("torch")
        import_module("transformers")
    except ImportError as error:
        hint = hint or f"install them, or leave out {option('verify')}"
        raise OptionError(f"running models needs torch and transformers: {error}", hint=hint) from error


def compare_models(old: Path, new: Path, plan: VocabPlan) -> Behaviour:
    """The comparison of the logits of kept tokens, on sequences of kept tokens, in the old and the new model.

    Only one model is in memory at a time.
    """
    require_torch()
    kept = sorted(plan.moved)
    if not kept:
        raise CheckpointError(
            "no token is in both tokenizers: nothing to compare", hint=f"leave out {option('verify')}"
        )
    generator = random.Random(0)
    sequences = [generator.choices(kept, k=LENGTH) for _ in range(SEQUENCES)]
    before, old_text = _run(old, "the source", sequences, kept)
    moved = plan.moved
    after, new_text = _run(new, "the result", [[moved[i] for i in ids] for ids in sequences], [moved[i] for i in kept])
    worst = float((before - after).abs().max() / before.abs().max().clamp(min=1e-9))
    if not worst <= TOLERANCE:
        raise CheckpointError(
            f"the logits of kept tokens differ by {worst:.2e} of the largest logit; rounding explains at most "
            f"{TOLERANCE}",
            hint="please report this, with the architecture",
        )
    return Behaviour(SEQUENCES, worst, old_text, new_text)


def _run(folder: Path, what: str, sequences: list[list[int]], wanted: list[int]) -> tuple["torch.Tensor", str]:
    """The logits of the wanted tokens at every position of the sequences, and the text generated from the prompt.

    For an encoder without a head for tokens, its output, such as hidden states. Encoders and encoder-decoders do not
    generate text: many need more than a prompt.
    """
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    offline = {"local_files_only": True, "trust_remote_code": False}
    name = class_with_encoder(read_config(folder / CONFIG))
    try:
        kind = getattr(import_module("transformers"), name) if name else AutoModelForCausalLM
        model: Any = kind.from_pretrained(str(folder), dtype=torch.float32, **offline)
        tokenizer: Any = AutoTokenizer.from_pretrained(str(folder), **offline)
        with torch.no_grad():
            found = model(**_inputs(model, sequences))[0]
            if name:
                return found[..., wanted] if found.shape[-1] == model.config.vocab_size else found, ""
            prompt = tokenizer(PROMPT, return_tensors="pt", return_token_type_ids=False)
            generated = model.generate(**prompt, max_new_tokens=GENERATED, do_sample=False)
        return found[..., wanted], str(tokenizer.decode(generated[0]))
    except Exception as error:  # any error of another library means that the model does not load or run
        raise CheckpointError(
            f"transformers cannot load or run {what}: {type(error).__name__}: {error}",
            hint=f"check that the source loads and runs, or leave out {option('verify')}",
        ) from error


def _inputs(model: Any, sequences: list[list[int]]) -> "dict[str, torch.Tensor]":
    """The sequences as the input of a model, of both parts of an encoder-decoder; silence for the encoder of speech."""
    import torch

    ids, config = torch.tensor(sequences), model.config
    inputs = {"input_ids": ids}
    if model.main_input_name == "input_features":
        inputs = {"input_features": torch.zeros(len(ids), config.num_mel_bins, 2 * config.max_source_positions)}
    both = "decoder_input_ids" in signature(model.forward).parameters  # not in classes with only the encoder
    return inputs | ({"decoder_input_ids": ids} if both else {})
