"""Findings about words that a tokenizer keeps whole at combining marks (`tokenizer.marks`), and who cuts them.

`marks_loaded`: whether the class of transformers for a model follows. `cut_words`: for programs that do not.
"""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

from tokengraft.checkpoint.ids import CONFIG, read_config
from tokengraft.counts.pretoken_counts import PretokenCounts
from tokengraft.errors import option
from tokengraft.formats import sources
from tokengraft.output.atomic import write_files
from tokengraft.output.partial import temporary_folder
from tokengraft.tokenizer.added import SETTINGS
from tokengraft.tokenizer.kind import CHARACTER_OF, spell
from tokengraft.tokenizer.marks import joined_scripts, kept_marks
from tokengraft.tokenizer.rewrite import TOKENIZER_JSON
from tokengraft.tokenizer.tokenizer import Tokenizer
from tokengraft.verify.against_base import PRESERVED
from tokengraft.verify.finding import EVIDENCE, Finding, Outcome, finding, not_checked, note
from tokengraft.verify.loaders import differing
from tokengraft.verify.transformers_loader import (
    CannotLoadError,
    load_with_transformers,
    transformers_installed,
    transformers_started,
)


def joined_words(tokenizer: Tokenizer) -> Finding:
    """What is split in another way because words are not cut at marks. All other checks take that for granted."""
    names = ", ".join(joined_scripts(tokenizer))
    return note("combining marks", f"words in {names} are not cut at them; text without them is split as before", [])


def joined_preserved(words: PretokenCounts, outcome: Outcome) -> Iterator[Finding]:
    """A finding if words of preserved text may have other ids because they are not cut at marks."""
    if words:
        shown = tuple(repr(text.decode(errors="replace")) for text, _ in words.top(EVIDENCE))
        detail = f"not for {len(words):,} distinct pretokens: words that the base cuts at combining marks"
        yield Finding(f"{PRESERVED}, combining marks", outcome, detail, shown)


def cut_words(tokenizer: Tokenizer) -> Iterator[Finding]:
    """A failure if a program cuts words by a pattern in its code, and the tokenizer keeps them whole."""
    if scripts := joined_scripts(tokenizer):
        detail = f"words in {', '.join(scripts)} are cut at combining marks, and the tokenizer keeps them whole"
        yield Finding("combining marks", "fail", detail, (), "serve it with transformers, vLLM or SGLang")


def marks_loaded(tokenizer: Tokenizer, model: Path) -> Iterator[Finding]:
    """Whether `AutoTokenizer` keeps words with marks whole in the folder of a model, if the tokenizer does.

    Its classes for some model types, such as `qwen2`, have a split pattern of their own, whatever the file says. A
    small tokenizer is loaded as the model's, with a token for a letter with each mark: only whole words give it.
    """
    name, marks = "AutoTokenizer, combining marks", kept_marks(tokenizer)
    if not (marks and (model / CONFIG).is_file()):
        return
    texts = [f"a{mark}" for mark in marks]
    with transformers_started(), temporary_folder() as parent:
        if not transformers_installed():
            yield not_checked(name, "transformers is not installed: `pip install transformers`")
            return
        settings = {SETTINGS: tokenizer.files[SETTINGS]} if SETTINGS in tokenizer.files else {}
        config = {key: value for key, value in read_config(model / CONFIG).items() if key in _CLASS_FIELDS}
        files = {TOKENIZER_JSON: _of_words(tokenizer, texts), CONFIG: json.dumps(config).encode(), **settings}
        write_files(files, parent / "model")
        expected = sources.load_folder(parent / "model").encode_batch(texts)
        try:
            found = load_with_transformers(parent / "model", texts).ids
        except CannotLoadError as error:
            yield not_checked(name, f"cannot load the folder: {error}")
            return
    wrong = [*map(repr, differing(texts, expected, found))]
    detail = f"cuts words at {{n}} of {len(texts):,} marks: the class of this model type has a split pattern of its own"
    fix = f"leave out {option('join_marks')}: programs that load the tokenizer would not use the new tokens"
    yield finding(name, wrong, f"keeps words whole at all {len(texts):,} marks", detail, fix)


_CLASS_FIELDS = ("model_type", "model_name", "tokenizer_class")
"""What decides the class of a tokenizer in `config.json`."""


def _of_words(tokenizer: Tokenizer, words: Sequence[str]) -> bytes:
    """A `tokenizer.json` with a token for each byte and each word, and the pipeline of a byte-level tokenizer."""
    vocab, merges = {character: i for i, character in enumerate(CHARACTER_OF.values())}, list[list[str]]()
    for word in words:
        string = spell(word.encode(), "byte-level") or ""
        for end in range(2, len(string) + 1):
            if string[:end] not in vocab:
                vocab[string[:end]] = len(vocab)
                merges.append([string[: end - 1], string[end - 1]])
    model = {"type": "BPE", "vocab": vocab, "merges": merges}
    return json.dumps({**tokenizer.document, "added_tokens": [], "post_processor": None, "model": model}).encode()
