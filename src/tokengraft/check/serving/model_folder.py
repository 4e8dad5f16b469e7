"""`ModelFolder`: a folder as a serving stack finds it: tokenizer, configs, and the shapes of its tables of tokens."""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from tokengraft.check.finding import Finding
from tokengraft.check.serving.auto_tokenizer import auto_tokenizer
from tokengraft.check.settings_file import read_settings
from tokengraft.checkpoint.ids import MAIN, read_config
from tokengraft.checkpoint.layout import VocabTensor, has_weights, open_checkpoint, vocabulary_tensors
from tokengraft.errors import CheckpointError
from tokengraft.formats import load
from tokengraft.formats.files import load_folder, save
from tokengraft.output.partial import temporary_folder
from tokengraft.tokenizer.settings import SETTINGS
from tokengraft.tokenizer.tokenizer import Tokenizer

GENERATION = "generation_config.json"


@dataclass(frozen=True)
class ModelFolder:
    """A model folder, or a tokenizer without a model."""

    path: Path
    tokenizer: Tokenizer
    configs: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """`config.json` and `generation_config.json`, those that there are."""
    tables: tuple[VocabTensor, ...] = ()
    """The tensors with a vocabulary axis."""
    unread: str = ""
    """Why there are no tables."""
    base: Tokenizer | None = None
    """The tokenizer that this one was made from, if it is known."""

    @property
    def config(self) -> Mapping[str, Any]:
        """The content of `config.json`; empty without a model."""
        return self.configs.get(MAIN, {})

    @property
    def has_model(self) -> bool:
        """Whether there is a `config.json`."""
        return MAIN in self.configs

    @property
    def vocab_size(self) -> int | None:
        """`vocab_size` of the language model, if `config.json` has it."""
        return self.size("vocab_size")

    def size(self, field: str) -> int | None:
        """A number in the config of the language model, which is nested in multimodal models."""
        nested = self.config.get("text_config")
        values = [part.get(field) for part in (nested, self.config) if isinstance(part, Mapping)]
        return next((value for value in values if type(value) is int), None)

    @property
    def rows(self) -> int | None:
        """Rows of the input embedding; without weights, what `config.json` says."""
        inputs = (table.info.shape[0] for table in self.tables if table.role == "input" and table.info.shape)
        return next(inputs, self.vocab_size)

    @property
    def architecture(self) -> str:
        """The first of `architectures`, which stacks choose the code by; empty if there is none."""
        listed = self.config.get("architectures")
        first = listed[0] if isinstance(listed, list) and listed else ""
        return first if isinstance(first, str) else ""

    @cached_property
    def settings(self) -> Mapping[str, Any]:
        """The content of `tokenizer_config.json`; empty if there is none."""
        return read_settings(self.tokenizer, SETTINGS)

    @cached_property
    def auto_tokenizer(self) -> Finding:
        """Whether transformers gives the ids of the tokenizer. Several stacks load it that way."""
        return auto_tokenizer(self.path, self.tokenizer)

    def token_setting(self, name: str) -> str | None:
        """The token that a setting such as `eos_token` names."""
        value = self.settings.get(name)
        text = value.get("content") if isinstance(value, Mapping) else value
        return text if isinstance(text, str) else None

    def has(self, pattern: str) -> list[str]:
        """The names of files that match a pattern."""
        return sorted(path.name for path in self.path.glob(pattern) if path.is_file())


@contextmanager
def open_model_folder(source: str | os.PathLike[str] | Tokenizer) -> Iterator[ModelFolder]:
    """The model folder at a source. Anything else than a folder is a tokenizer without a model.

    Raises:
        TokengraftError: There is no tokenizer, or it or a config cannot be read.
    """
    if not isinstance(source, Tokenizer) and os.path.isdir(source):  # noqa: PTH112 (no error for a long name)
        yield _read(Path(source))
        return
    tokenizer = source if isinstance(source, Tokenizer) else load(source)
    with temporary_folder() as parent:
        yield ModelFolder(save(tokenizer, parent / "tokenizer"), tokenizer, unread="there is no model")


def _read(path: Path) -> ModelFolder:
    tokenizer = load_folder(path)
    configs = {name: _config(path / name) for name in (MAIN, GENERATION) if (path / name).is_file()}
    tables, unread = _tables(path) if MAIN in configs else ((), "there is no config.json")
    return ModelFolder(path, tokenizer, configs, tables, unread)


def _config(path: Path) -> dict[str, Any]:
    content = read_config(path)
    if not isinstance(content, dict):
        raise CheckpointError(f"`{path}` is not a JSON object", hint="download the model again")
    return content


def _tables(path: Path) -> tuple[tuple[VocabTensor, ...], str]:
    """The tables of tokens, or why they cannot be read."""
    try:
        if not has_weights(path):
            return (), "there are no weights"
        return tuple(vocabulary_tensors(open_checkpoint(path))), "no table of tokens was found in the weights"
    except CheckpointError as error:
        return (), error.message
