"""vLLM: loads the tokenizer with `AutoTokenizer`, and tables of exactly `vocab_size` rows."""

from collections.abc import Iterator

from tokengraft.check.finding import Finding
from tokengraft.check.serving.model import model_findings
from tokengraft.check.serving.model_folder import ModelFolder
from tokengraft.check.serving.stacks import VLLM_PADDING
from tokengraft.check.serving.transformers import code

LORA_ROWS = 258_048
"""The largest `vocab_size` that LoRA adapters work with."""


def findings(folder: ModelFolder) -> Iterator[Finding]:
    """What vLLM makes of the folder."""
    yield folder.auto_tokenizer
    yield code(folder)
    yield mistral_format(folder)
    yield from model_findings(folder)
    if folder.rows is not None:
        yield padding(folder.rows)
        yield lora(folder.rows)


def mistral_format(folder: ModelFolder) -> Finding:
    """Whether vLLM would load Mistral's own files instead of those of Hugging Face."""
    weights = folder.has("consolidated*.safetensors")
    if not weights:
        return Finding("format", "pass", "Hugging Face's files are loaded")
    others = [*folder.has("params.json"), *folder.has("tekken.json"), *folder.has("tokenizer.model.v*")]
    used = ", ".join(f"`{name}`" for name in (weights[0], *others))
    if not folder.has("model*.safetensors"):
        return Finding("format", "note", f"vLLM loads {used}; see --for mistral-common", (), "")
    fix = f"delete `{weights[0]}`, or pass --load-format hf --config-format hf --tokenizer-mode hf"
    return Finding("format", "fail", f"vLLM loads {used} instead of Hugging Face's files", (), fix)


def padding(rows: int) -> Finding:
    """Whether vLLM has to pad the tables."""
    padded = -(-rows // VLLM_PADDING) * VLLM_PADDING
    if padded == rows:
        return Finding("padding", "pass", f"{rows:,} rows are a multiple of {VLLM_PADDING}")
    fix = f"nothing has to be done; `tokengraft transplant --pad-multiple {VLLM_PADDING}` writes that many rows"
    return Finding("padding", "note", f"vLLM pads {rows:,} rows to {padded:,} in memory", (), fix)


def lora(rows: int) -> Finding:
    """Whether LoRA adapters work."""
    if rows <= LORA_ROWS:
        return Finding("LoRA", "pass", f"{rows:,} rows are within the limit of {LORA_ROWS:,}")
    fix = "merge the adapter into the model, or prune the vocabulary"
    return Finding("LoRA", "note", f"with LoRA adapters vLLM refuses more than {LORA_ROWS:,} rows", (), fix)
