"""`load_model`: a checkpoint folder as a transformers model, with its tokenizer. The only module that loads models.

Nothing of the folder is executed, nothing is unpickled, and no network is used.
"""

import gc
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tokengraft.checkpoint.folder import Checkpoint, architecture, generates, open_checkpoint
from tokengraft.checkpoint.in_memory import require_torch
from tokengraft.checkpoint.tensors import ITEM_BYTES
from tokengraft.errors import CheckpointError, TokengraftError
from tokengraft.formats.sources import load_folder
from tokengraft.pruning.removable import chat_templates
from tokengraft.tokenizer.tokenizer import Tokenizer

LEAST_LOGITS, MOST_LOGITS = 1 << 27, 1 << 30
MOST_OF_MEMORY = 0.6
"""The share of the memory that weights may have."""
LOGIT_BYTES = 16
"""A logit in half and full precision, each with its gradient, and what is between."""


def logits_that_fit(memory: int) -> int:
    """Logits for a quarter of the memory of a GPU. Larger batches are faster: a small model waits for its kernels.

    >>> [round(logits_that_fit(gigabytes << 30) / 1e6) for gigabytes in (8, 24, 141)]
    [134, 403, 1074]
    """
    return max(LEAST_LOGITS, min(MOST_LOGITS, memory // 4 // LOGIT_BYTES))


@dataclass(frozen=True)
class Hardware:
    """Where models run, and in which type they compute."""

    device: str
    dtype: str

    @property
    def on_gpu(self) -> bool:
        """Whether the device is a GPU."""
        return self.device == "cuda"

    @property
    def memory(self) -> int:
        """Bytes of the GPU, or of the machine."""
        import torch

        if self.on_gpu:
            return int(torch.cuda.get_device_properties(self.device).total_memory)
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")

    @property
    def max_logits(self) -> int:
        """Logits that a batch may have: tokens times vocabulary. They need most of the memory of a small model."""
        return logits_that_fit(self.memory) if self.on_gpu else LEAST_LOGITS

    def autocast(self) -> Any:
        """A context in which matrices are multiplied in the chosen type."""
        import torch

        return torch.autocast(self.device, torch.bfloat16, enabled=self.dtype == "bfloat16")


@dataclass(frozen=True)
class LoadedModel:
    """A model in memory, with its tokenizer."""

    model: Any
    """A `PreTrainedModel`."""
    tokenizer: Tokenizer
    start: tuple[int, ...]
    """The ids before every text, so that its first token can be scored."""
    hardware: Hardware

    @property
    def rows(self) -> int:
        """Rows of the embedding."""
        return len(self.model.get_input_embeddings().weight)


def hardware() -> Hardware:
    """A GPU if there is one, else the CPU: in bfloat16 if it has units for that, else in float32."""
    require_torch('install them: pip install "tokengraft[torch]"')
    import torch

    if torch.cuda.is_available():
        return Hardware("cuda", "bfloat16" if torch.cuda.is_bf16_supported(including_emulation=False) else "float32")
    # Measured with matrices of SmolLM2: 3.5 times as fast with AMX, and without it slower than float32.
    return Hardware("cpu", "bfloat16" if torch.cpu._is_amx_tile_supported() else "float32")


def load_model(folder: str | os.PathLike[str], where: Hardware, *, dtype: str | None = None) -> LoadedModel:
    """The model and the tokenizer of a folder.

    By default weights are 32-bit floats, or 16-bit ones if these do not fit.
    """
    path = Path(folder)
    checkpoint = open_checkpoint(path)
    if not generates(checkpoint.config) or checkpoint.config.get("is_encoder_decoder"):
        raise CheckpointError(
            f"`{path}` is {architecture(checkpoint.config)}, which does not predict the next token of a text",
            hint="pass a causal language model: bits per byte of an encoder mean nothing",
        )
    tokenizer = load_folder(path)
    numbers = sum(tensor.size // ITEM_BYTES.get(tensor.dtype, 1) for tensor in checkpoint.tensors)
    kind = dtype or ("float32" if 4 * numbers < MOST_OF_MEMORY * where.memory else "bfloat16")
    model = _model(path, kind).to(where.device)
    loaded = LoadedModel(model, tokenizer, start_ids(checkpoint, tokenizer), where)
    if tokenizer.n_rows > loaded.rows:
        raise CheckpointError(
            f"the tokenizer in `{path}` needs {tokenizer.n_rows:,} rows and the embedding has {loaded.rows:,}",
            hint="pass a folder whose tokenizer belongs to the model, such as the output of `tokengraft transplant`",
        )
    return loaded


def _model(path: Path, dtype: str) -> Any:
    import torch
    from transformers import AutoModelForCausalLM

    try:
        with no_progress_bar():
            model, info = AutoModelForCausalLM.from_pretrained(
                str(path),
                dtype=getattr(torch, dtype),
                local_files_only=True,
                trust_remote_code=False,
                use_safetensors=True,
                output_loading_info=True,
            )
    except Exception as error:  # any error of another library means that the model does not load
        raise CheckpointError(
            f"transformers cannot load `{path}`: {type(error).__name__}: {error}",
            hint="check that `AutoModelForCausalLM.from_pretrained` loads it without `trust_remote_code`",
        ) from error
    if missing := sorted(info["missing_keys"]):
        raise CheckpointError(
            f"`{path}` lacks {len(missing):,} tensors of a model that predicts the next token, such as `{missing[0]}`",
            hint="pass a causal language model: bits per byte of an encoder mean nothing",
        )
    return model.eval()


@contextmanager
def no_progress_bar() -> Iterator[None]:
    """Without the bar that transformers shows for loading a model."""
    from transformers.utils import logging

    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()


@contextmanager
def running(what: str, hint: str) -> Iterator[None]:
    """Converts errors of other libraries into one that says that the model cannot be run, trained or the like."""
    try:
        yield
    except TokengraftError:
        raise
    except Exception as error:  # any error of another library means that the model does not run
        raise CheckpointError(f"the model cannot be {what}: {type(error).__name__}: {error}", hint=hint) from error


def start_ids(checkpoint: Checkpoint, tokenizer: Tokenizer) -> tuple[int, ...]:
    """The ids before every text: the start token that the config names, else its end token, else a newline.

    A model predicts a token from those before it, so the first token of a text needs one. With this rule no byte of a
    text is left out, whatever the tokenizer. The config of a chat model may name a token that its chat template writes
    before every turn, such as `<|im_start|>` of SmolLM2. Text that is no turn does not follow it: then it is
    `<|endoftext|>`, which was between the documents of the pre-training, if the tokenizer has it.
    """
    for name in ("bos_token_id", "eos_token_id"):
        for config in (checkpoint.config, checkpoint.text_config):
            value = config.get(name)
            first = value[0] if isinstance(value, list) and value else value
            if type(first) is int and first in tokenizer.strings:
                in_chat = any(tokenizer.strings[first] in template for template in chat_templates(tokenizer))
                between = [token.id for token in tokenizer.added if token.content == "<|endoftext|>"]
                return (between[0] if in_chat and between else first,)
    return tuple(tokenizer.encode("\n")) or (min(tokenizer.strings),)


def free_memory() -> None:
    """Gives the memory of models that are no longer used back, so that the next one fits."""
    import torch

    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
