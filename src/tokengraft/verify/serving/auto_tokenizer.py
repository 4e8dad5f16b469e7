"""`auto_tokenizer`: whether transformers gives the ids of tokenizer.json for a folder, and what helps if it does not.

Some of its classes rebuild the tokenizer from vocabulary and merges, and ignore the rest of the file. The class depends
on `model_type` in `config.json` too, so the folder itself is loaded, not the tokenizer files alone.
"""

import json
import shutil
from pathlib import Path

from tokengraft.checkpoint.ids import CONFIG
from tokengraft.formats.huggingface import write_tokenizer_json
from tokengraft.formats.sources import TOKENIZER_JSON, folder_files
from tokengraft.output.json_file import read_settings
from tokengraft.output.partial import temporary_folder
from tokengraft.tokenizer.added import SETTINGS
from tokengraft.tokenizer.tokenizer import Tokenizer
from tokengraft.verify.finding import EVIDENCE, Finding, not_checked
from tokengraft.verify.loaders import added_texts, sample_texts
from tokengraft.verify.transformers_loader import CannotLoadError, load_with_transformers, transformers_installed

PLAIN_CLASS = "PreTrainedTokenizerFast"
"""The class that uses `tokenizer.json` as it is."""


_Samples = list[tuple[str, list[int]]]
"""Texts, and what the tokenizer makes of them."""


def auto_tokenizer(path: Path, tokenizer: Tokenizer) -> Finding:
    """Whether `AutoTokenizer` gives the ids of the tokenizer in a folder, for sample texts."""
    name = "AutoTokenizer"
    if not transformers_installed():
        return not_checked(name, "transformers is not installed: `pip install transformers`")
    texts = [*sample_texts(tokenizer), *added_texts(tokenizer)]
    samples = [*zip(texts, tokenizer.encode_batch(texts), strict=True)]
    try:
        different = _different(path, samples)
    except CannotLoadError as error:
        otherwise = "correct what the error names; `AutoTokenizer.from_pretrained` shows all of it"
        fix = _fix(path, tokenizer, samples) or otherwise
        return Finding(name, "fail", f"cannot load the folder: {error}", (), fix)
    if not different:
        return Finding(name, "pass", f"the same ids for {len(texts):,} sample texts")
    shown = tuple(f"{text!r}" for text in different[:EVIDENCE])
    detail = f"other ids for {len(different):,} of {len(texts):,} sample texts"
    otherwise = f"load it with `{PLAIN_CLASS}.from_pretrained`; naming that class in {SETTINGS} does not help"
    return Finding(name, "fail", detail, shown, _fix(path, tokenizer, samples) or otherwise)


def _different(path: Path, samples: _Samples) -> list[str]:
    loaded = load_with_transformers(path, [text for text, _ in samples])
    return [text for (text, ours), theirs in zip(samples, loaded.ids, strict=True) if ours != theirs]


def _fix(path: Path, tokenizer: Tokenizer, samples: _Samples) -> str:
    """The setting that makes the ids equal, tried on a copy of the tokenizer files; empty if it does not help."""
    with temporary_folder() as parent:
        copy = _with_plain_class(path, tokenizer, parent / "model")
        try:
            helps = not _different(copy, samples)
        except CannotLoadError:
            helps = False
    setting = f'set "tokenizer_class": "{PLAIN_CLASS}" in {SETTINGS}'
    if tokenizer.main != TOKENIZER_JSON:
        setting = f"write a {TOKENIZER_JSON} (`tokengraft convert FOLDER --to huggingface`) and {setting}"
    return f"{setting}; tried on a copy: the ids are then the same" if helps else ""


def _with_plain_class(path: Path, tokenizer: Tokenizer, copy: Path) -> Path:
    """A copy of the tokenizer and `config.json`, with the class that uses the file as it is."""
    for name, data in {**folder_files(tokenizer), TOKENIZER_JSON: write_tokenizer_json(tokenizer)}.items():
        (copy / name).parent.mkdir(parents=True, exist_ok=True)
        (copy / name).write_bytes(data)
    settings = {**read_settings(tokenizer.files, SETTINGS), "tokenizer_class": PLAIN_CLASS}
    (copy / SETTINGS).write_text(json.dumps(settings), encoding="utf-8")
    if (path / CONFIG).is_file():
        shutil.copyfile(path / CONFIG, copy / CONFIG)
    return copy
