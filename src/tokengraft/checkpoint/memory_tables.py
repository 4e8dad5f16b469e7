"""Refuses models in memory whose tables of tokens cannot be replaced: with adapters, offloaded, sharded, quantised."""

from typing import TYPE_CHECKING, Any

from tokengraft.errors import CheckpointError

if TYPE_CHECKING:
    import torch

_WRAPPED = ("base_layer", "original_module")
"""Attributes of modules that PEFT puts around others: adapters, and modules or tokens that are trained as copies."""


def without_adapters(model: Any) -> Any:
    """The model inside a PEFT model; other models as they are. Adapters inside it stay."""
    return model.get_base_model() if hasattr(model, "peft_config") and hasattr(model, "get_base_model") else model


def require_plain_tables(embedding: Any, head: Any) -> None:
    """Refuses an embedding or a head whose rows cannot be replaced.

    Raises:
        CheckpointError: With what is in the way, and how to do it instead.
    """
    for what, module in (("embedding", embedding), ("head", head)):
        if module is not None:
            _require_no_adapter(module, what)
    if not hasattr(embedding, "weight") or embedding.weight.ndim != 2:
        raise CheckpointError("the model has no plain input embedding", hint="pass a decoder-only language model")
    tables = (("embedding", embedding.weight), ("head", getattr(head, "weight", None)))
    for what, weight in (*tables, ("bias of the head", getattr(head, "bias", None))):
        if weight is not None:
            _require_here(weight, what)


def dtype_name(weight: "torch.Tensor") -> str:
    """The type of a table as safetensors names it.

    Raises:
        CheckpointError: The type is not supported.
    """
    import torch

    names = {torch.bfloat16: "BF16", torch.float16: "F16", torch.float32: "F32"}
    if weight.dtype not in names:
        raise CheckpointError(
            f"a table of tokens has the type {weight.dtype}, which is not supported",
            hint="load the model in bfloat16, float16 or float32",
        )
    return names[weight.dtype]


def _require_no_adapter(module: Any, what: str) -> None:
    if any(hasattr(module, name) for name in _WRAPPED):
        raise CheckpointError(
            f"the model's {what} has an adapter ({type(module).__name__}), whose rows belong to the old vocabulary",
            hint="transplant the model before you add adapters to embedding or head, tokens that are trained "
            "(trainable_token_indices) and modules to save included",
        )


def _require_here(weight: "torch.Tensor", what: str) -> None:
    """Refuses a table without its numbers, or with a part of them."""
    dtype_name(weight)
    if weight.device.type == "meta":
        raise CheckpointError(
            f"the model's {what} is offloaded: its weights are on the device `meta`",
            hint="load the model with a device_map that keeps embedding and head on a device, or use "
            "`tokengraft transplant`, which does not load the model",
        )
    if hasattr(weight, "device_mesh"):
        raise CheckpointError(
            f"the model's {what} is sharded over several devices", hint="transplant the model before it is sharded"
        )
