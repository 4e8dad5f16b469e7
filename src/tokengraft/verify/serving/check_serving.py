"""`check_serving`: whether a serving stack can use a folder. The checks of transformers and vLLM are here."""

import os
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import replace
from types import NoneType

from tokengraft.checkpoint.ids import CONFIG
from tokengraft.errors import OptionError, require_type
from tokengraft.progress import stage
from tokengraft.tokenizer.added import SETTINGS
from tokengraft.tokenizer.tokenizer import Tokenizer
from tokengraft.verify.finding import Check, Finding
from tokengraft.verify.serving.converters import llama_cpp, ollama
from tokengraft.verify.serving.libraries import mistral_common, sentencepiece, tiktoken
from tokengraft.verify.serving.model_folder import ModelFolder, model_findings, open_model_folder
from tokengraft.verify.serving.stacks import STACKS, facts, require_stack
from tokengraft.verify.transformers_loader import transformers_started

_WITH_TRANSFORMERS = {"transformers", "vllm", "llama.cpp"}
"""Stacks that load tokenizers with transformers."""


@stage("checking serving stacks")
def check_serving(source: str | os.PathLike[str] | Tokenizer, *stacks: str, base: Tokenizer | None = None) -> Check:
    """Whether serving stacks can use a folder, with what to do where they cannot.

    A stack that is installed is asked: the folder is loaded, and the ids of sample texts are compared. Of the others,
    it is checked what they read, according to their source. A finding says what could not be checked.

    Args:
        source: A model folder; or a tokenizer, its file or its hub name, to check without a model.
        stacks: `transformers`, `vllm`, `llama.cpp`, `ollama`, `tiktoken`, `mistral-common` or `sentencepiece`.
        base: The tokenizer that this one was made from. llama.cpp must take both for the same type.

    Raises:
        OptionError: There is no such stack, or none was given.
        TokengraftError: The tokenizer or a config cannot be read.

    Examples:
        >>> result = tg.check_serving("model", "ollama")
        >>> [(finding.name, finding.fix) for finding in result.failures]
        []
    """
    require_type("base", base, Tokenizer, NoneType)
    if not stacks:
        raise OptionError("no serving stack was given", hint=f"choose one of {', '.join(STACKS)}")
    for stack in stacks:
        require_stack(stack)
    loading = transformers_started() if _WITH_TRANSFORMERS.intersection(stacks) else nullcontext()
    with loading, open_model_folder(source) as opened:
        folder = replace(opened, base=base)
        found = ((stack, finding) for stack in dict.fromkeys(stacks) for finding in _FINDINGS[stack](folder))
        return Check(tuple(replace(finding, name=f"{stack}: {finding.name}") for stack, finding in found))


def _transformers(folder: ModelFolder) -> Iterator[Finding]:
    yield folder.auto_tokenizer
    yield _code(folder)
    yield from model_findings(folder)


def _code(folder: ModelFolder) -> Finding:
    """Whether the folder needs its own code to be executed."""
    files = [name for name, part in ((CONFIG, folder.config), (SETTINGS, folder.settings)) if "auto_map" in part]
    if not files:
        return Finding("code", "pass", "the folder needs no code of its own")
    fix = "pass trust_remote_code=True only if you trust it, and check what its tokenizer makes of the new tokens"
    return Finding("code", "note", f"`auto_map` in {' and '.join(files)} names code, which is not checked", (), fix)


def _vllm(folder: ModelFolder) -> Iterator[Finding]:
    yield folder.auto_tokenizer
    yield _code(folder)
    yield _mistral_format(folder)
    yield from model_findings(folder)
    if folder.rows is not None:
        yield from _table_sizes(folder.rows)


def _mistral_format(folder: ModelFolder) -> Finding:
    """Whether vLLM would load Mistral's own files instead of those of Hugging Face."""
    fact, weights = facts("vllm")["format"], folder.has("consolidated*.safetensors")
    if not weights:
        return fact.finding("fine")
    others = [*folder.has("params.json"), *folder.has("tekken.json"), *folder.has("tokenizer.model.v*")]
    used = ", ".join(f"`{name}`" for name in (weights[0], *others))
    return fact.finding("wrong" if folder.has("model*.safetensors") else "alone", used=used, weights=weights[0])


def _table_sizes(rows: int) -> Iterator[Finding]:
    """Whether vLLM has to pad the tables, and whether LoRA adapters work."""
    padding, lora = facts("vllm")["padding"], facts("vllm")["LoRA"]
    padded = -(-rows // padding.values["multiple"]) * padding.values["multiple"]
    yield padding.finding("fine" if padded == rows else "wrong", rows=rows, padded=padded)
    yield lora.finding("fine" if rows <= lora.values["most"] else "wrong", rows=rows)


_FINDINGS: dict[str, Callable[[ModelFolder], Iterator[Finding]]] = {
    "transformers": _transformers,
    "vllm": _vllm,
    "llama.cpp": llama_cpp,
    "ollama": ollama,
    "tiktoken": tiktoken,
    "mistral-common": mistral_common,
    "sentencepiece": sentencepiece,
}
