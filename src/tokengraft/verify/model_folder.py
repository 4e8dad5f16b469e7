"""`ModelFolder`: a folder as a serving stack finds it: tokenizer, configs, and the shapes of its tables of tokens.

`auto_tokenizer`: whether transformers gives the ids of tokenizer.json for a folder, and what helps if it does not. Some
of its classes rebuild the tokenizer from vocabulary and merges, and ignore the rest of the file. The class depends on
`model_type` in `config.json` too, so the folder itself is loaded, not the tokenizer files alone.

`same_ids`: whether another library gives them for its own file.

`model_findings`: what every stack needs of a model, tables that fit tokenizer and config, and special ids that exist.
"""

import json
import os
import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from tokengraft.checkpoint.folder import has_weights, open_checkpoint
from tokengraft.checkpoint.ids import CONFIG, GENERATION, NEVER_CHOSEN, id_fields, read_config
from tokengraft.checkpoint.layout import PER_LAYER, PER_LAYER_SIZE, VocabTensor, vocabulary_tensors
from tokengraft.errors import CheckpointError
from tokengraft.formats import load
from tokengraft.formats.huggingface import write_tokenizer_json
from tokengraft.formats.sources import folder_files, load_folder, save
from tokengraft.output.atomic import write_files
from tokengraft.output.json_file import read_settings
from tokengraft.output.partial import temporary_folder
from tokengraft.tokenizer.added import SETTINGS
from tokengraft.tokenizer.marks import PLAIN_CLASS
from tokengraft.tokenizer.rewrite import TOKENIZER_JSON
from tokengraft.tokenizer.tokenizer import Tokenizer
from tokengraft.verify.finding import EVIDENCE, Finding, finding, not_checked
from tokengraft.verify.loaders import Encode, added_texts, differing, sample_texts
from tokengraft.verify.transformers_loader import (
    CannotLoadError,
    load_with_transformers,
    summary,
    transformers_installed,
)


def auto_tokenizer(path: Path, tokenizer: Tokenizer) -> Finding:
    """Whether `AutoTokenizer` gives the ids of the tokenizer in a folder, for sample texts.

    If not, the class that uses `tokenizer.json` as it is is tried on a copy, and named as the fix where it helps.
    """
    name = "AutoTokenizer"
    if not transformers_installed():
        return not_checked(name, "transformers is not installed: `pip install transformers`")
    texts = [*sample_texts(tokenizer), *added_texts(tokenizer)]
    ours = tokenizer.encode_batch(texts)

    def different(folder: Path) -> list[str]:
        return [*map(repr, differing(texts, ours, load_with_transformers(folder, texts).ids))]

    shown: list[str] = []
    try:
        shown = different(path)
        if not shown:
            return Finding(name, "pass", f"the same ids for {len(texts):,} sample texts")
        detail = f"other ids for {len(shown):,} of {len(texts):,} sample texts"
        fix = f"load it with `{PLAIN_CLASS}.from_pretrained`; naming that class in {SETTINGS} does not help"
    except CannotLoadError as error:
        detail = f"cannot load the folder: {error}"
        fix = "correct what the error names; `AutoTokenizer.from_pretrained` shows all of it"
    settings = {**read_settings(tokenizer.files, SETTINGS), "tokenizer_class": PLAIN_CLASS}
    changed = {TOKENIZER_JSON: write_tokenizer_json(tokenizer), SETTINGS: json.dumps(settings).encode()}
    with temporary_folder() as parent, suppress(CannotLoadError):
        copy = parent / "model"
        write_files({**folder_files(tokenizer), **changed}, copy)
        if (path / CONFIG).is_file():
            shutil.copyfile(path / CONFIG, copy / CONFIG)
        if not different(copy):
            setting = f'set "tokenizer_class": "{PLAIN_CLASS}" in {SETTINGS}'
            if tokenizer.main != TOKENIZER_JSON:
                setting = f"write a {TOKENIZER_JSON} (`tokengraft convert FOLDER --to huggingface`) and {setting}"
            fix = f"{setting}; tried on a copy: the ids are then the same"
    return Finding(name, "fail", detail, tuple(shown[:EVIDENCE]), fix)


def same_ids(tokenizer: Tokenizer, library: str, encode: Encode, fix: str, *, refused: str = "") -> Finding:
    """Whether a library gives the ids of the tokenizer for sample texts. Texts with added tokens are left out."""
    name = "encoding"
    texts = sample_texts(tokenizer)
    if library == "sentencepiece":  # the two differ by design in spaces at the ends
        texts = [text.strip(" ") for text in texts]
    try:
        theirs = encode(texts)
    except ImportError:
        return not_checked(name, f"{library} is not installed: `pip install {library}`")
    except Exception as error:  # whatever a parser of another library raises
        return Finding(name, "fail", f"{library} refuses the file: {summary(error)}", (), refused or fix)
    added = {token.id for token in tokenizer.added}
    ours = tokenizer.encode_batch(texts)
    pairs = [(text, a, b) for text, a, b in zip(texts, ours, theirs, strict=True) if not added.intersection(a)]
    wrong = [repr(text) for text, a, b in pairs if a != b]
    fine = f"the same ids for {len(pairs):,} sample texts"
    return finding(name, wrong, fine, f"other ids for {{n}} of {len(pairs):,} sample texts", fix)


TRANSPLANT = "give the model this tokenizer: `tokengraft transplant MODEL TOKENIZER --out NEW`"
_PLACEHOLDER = re.compile(r"image|img|video|vision|frame|audio|index$")
"""Fields of ids that are replaced by the output of an encoder, and may lie beyond the table of tokens."""


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
        return self.configs.get(CONFIG, {})

    @property
    def has_model(self) -> bool:
        """Whether there is a `config.json`."""
        return CONFIG in self.configs

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
        inputs = (table.rows for table in self.tables if table.role == "input" and table.shape)
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
        return read_settings(self.tokenizer.files, SETTINGS)

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
    """The model folder at a source. Anything else than a folder is a tokenizer without a model."""
    if not isinstance(source, Tokenizer) and os.path.isdir(source):  # noqa: PTH112 (no error for a long name)
        yield _read(Path(source))
        return
    tokenizer = source if isinstance(source, Tokenizer) else load(source)
    with temporary_folder() as parent:
        yield ModelFolder(save(tokenizer, parent / "tokenizer"), tokenizer, unread="there is no model")


def _read(path: Path) -> ModelFolder:
    """A folder with its tables of tokens, or why they cannot be read."""
    tokenizer = load_folder(path)
    configs = {name: read_config(path / name) for name in (CONFIG, GENERATION) if (path / name).is_file()}
    for name, content in configs.items():
        if not isinstance(content, dict):
            raise CheckpointError(f"`{path / name}` is not a JSON object", hint="download the model again")
    tables: tuple[VocabTensor, ...] = ()
    if CONFIG not in configs:
        return ModelFolder(path, tokenizer, configs, unread="there is no config.json")
    try:
        unread = "no table of tokens was found in the weights" if has_weights(path) else "there are no weights"
        tables = tuple(vocabulary_tensors(open_checkpoint(path))) if has_weights(path) else ()
    except CheckpointError as error:
        unread = error.message
    return ModelFolder(path, tokenizer, configs, tables, unread)


def model_findings(folder: ModelFolder) -> Iterator[Finding]:
    """The checks of tables and ids that all stacks share."""
    if not folder.has_model:
        yield not_checked("model", "this is a tokenizer without a model (no config.json)")
        return
    yield table_rows(folder)
    rows, needed = folder.rows, folder.tokenizer.n_rows
    if rows is None:
        reason = f"{folder.unread or 'there are no weights'}, and config.json has no `vocab_size`"
        yield not_checked("ids", reason)
    elif needed > rows:
        detail = f"the highest id is {needed - 1:,}, and the model has {rows:,} rows"
        yield Finding("ids", "fail", detail, (), TRANSPLANT)
    else:
        yield Finding("ids", "pass", f"the tokenizer needs {needed:,} of {rows:,} rows")
    yield special_ids(folder)


def table_rows(folder: ModelFolder) -> Finding:
    """Whether every table of tokens has `vocab_size` rows. Loaders create tables of that size and refuse others."""
    name, size, rows = "embedding rows", folder.vocab_size, folder.rows
    if not folder.tables or rows is None:
        return not_checked(name, folder.unread)
    # Gemma 3n has a size of its own for the table of every layer.
    fields = [PER_LAYER_SIZE if PER_LAYER in table.name else "vocab_size" for table in folder.tables]
    sized = zip(folder.tables, map(folder.size, fields), strict=True)
    wrong = [f"`{table.name}` has {table.rows:,} rows" for table, wanted in sized if table.rows != wanted]
    if not wrong:
        return Finding(name, "pass", f"{rows:,}, as `vocab_size` says")
    alike = all(table.rows == rows for table in folder.tables)
    set_size = f'set "vocab_size": {rows} in config.json'
    if size is None and alike:
        detail = f"config.json has no `vocab_size`, so the default of its class must be {rows:,}"
        return Finding(name, "note", detail, (), set_size)
    fix = set_size if alike and rows >= folder.tokenizer.n_rows else TRANSPLANT
    return Finding(name, "fail", f"`vocab_size` in config.json is {size}", tuple(wrong[:EVIDENCE]), fix)


def special_ids(folder: ModelFolder) -> Finding:
    """Whether the ids that configs name exist, and belong to tokens."""
    name, rows = "special ids", folder.rows
    strings = folder.tokenizer.strings
    named = []  # a text that shows the id, the field, and the id
    for file, config in folder.configs.items():
        with suppress(CheckpointError):  # an id that is text or a fraction, which loaders ignore or refuse
            fields = id_fields(dict(config))
            named += [(f"`{field}` in {file} is {i:,}", field, i) for field, i in fields if i >= 0]
    if rows is not None:
        beyond = [text for text, field, i in named if i >= rows and not _PLACEHOLDER.search(field)]
        if beyond:
            fix = "correct these fields, or give the model its tokenizer with `tokengraft transplant`"
            return Finding(name, "fail", f"{len(beyond)} are not below {rows:,}", tuple(beyond[:EVIDENCE]), fix)
    needed = [(text, i) for text, field, i in named if field not in NEVER_CHOSEN and not _PLACEHOLDER.search(field)]
    without = [text for text, i in needed if i not in strings]
    if without:
        fix = "if the model uses that row, give it a token; otherwise correct the field"
        return Finding(name, "note", f"{len(without)} have a row but no token", tuple(without[:EVIDENCE]), fix)
    return _end_of_text(folder) or Finding(name, "pass", f"all {len(needed)} in the configs have tokens")


def _end_of_text(folder: ModelFolder) -> Finding | None:
    """A note if the model would not stop at the end token that the tokenizer names."""
    token = folder.token_setting("eos_token")
    listed = [dict(folder.configs.get(file, {})).get("eos_token_id") for file in (GENERATION, CONFIG)]
    ids = {i for value in listed for i in (value if isinstance(value, list) else [value]) if type(i) is int}
    own = folder.tokenizer.ids.get(token) if token is not None else None
    if own is None or not ids or own in ids:
        return None
    named = ", ".join(f"{folder.tokenizer.strings.get(i)!r} ({i:,})" for i in sorted(ids))
    detail = f"the configs end text with {named}, the tokenizer with {token!r} ({own:,})"
    return Finding("special ids", "note", detail, (), f"add {own} to `eos_token_id` in {GENERATION} if it ends a reply")
