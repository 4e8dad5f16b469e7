"""`check_serving`: whether a serving stack can use a folder."""

import os
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import replace

from tokengraft.arguments import checked
from tokengraft.check.finding import Check, Finding
from tokengraft.check.serving import (
    llama_cpp,
    mistral_common,
    ollama,
    sentencepiece,
    tiktoken,
    transformers,
    vllm,
)
from tokengraft.check.serving.model_folder import ModelFolder, open_model_folder
from tokengraft.check.serving.stacks import STACKS, require_stack
from tokengraft.check.transformers_loader import transformers_started
from tokengraft.errors import OptionError
from tokengraft.log import stage
from tokengraft.tokenizer.tokenizer import Tokenizer

_FINDINGS: dict[str, Callable[[ModelFolder], Iterator[Finding]]] = {
    "transformers": transformers.findings,
    "vllm": vllm.findings,
    "llama.cpp": llama_cpp.findings,
    "ollama": ollama.findings,
    "tiktoken": tiktoken.findings,
    "mistral-common": mistral_common.findings,
    "sentencepiece": sentencepiece.findings,
}

_WITH_TRANSFORMERS = {"transformers", "vllm", "llama.cpp"}
"""Stacks that load tokenizers with transformers."""


@checked
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
    if not stacks:
        raise OptionError("no serving stack was given", hint=f"choose one of {', '.join(STACKS)}")
    for stack in stacks:
        require_stack(stack)
    loading = transformers_started() if _WITH_TRANSFORMERS.intersection(stacks) else nullcontext()
    with loading, open_model_folder(source) as opened:
        folder = replace(opened, base=base)
        return Check(tuple(named for stack in dict.fromkeys(stacks) for named in _named(stack, folder)))


def _named(stack: str, folder: ModelFolder) -> Iterator[Finding]:
    """The findings of a stack, named after it."""
    return (replace(finding, name=f"{stack}: {finding.name}") for finding in _FINDINGS[stack](folder))
