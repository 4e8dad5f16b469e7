"""`model_card`: the `README.md` of a model or tokenizer with a changed vocabulary, with front matter that hubs read.

It says what was changed, what was measured and what was not, and how to load it. The card of the source follows below.
It depends only on the source and the request, and has no path of the machine that made it.

No YAML library is needed: of the front matter of a source, only fields with a plain value or a list of them are read.
Whatever is not beyond doubt is left out, and named.
"""

import json
import os
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tokengraft import _core
from tokengraft.checkpoint.folder import class_with_encoder
from tokengraft.checkpoint.ids import CONFIG, read_config
from tokengraft.checkpoint.model_files import CARD, MODULES
from tokengraft.checkpoint.result import Transplant
from tokengraft.errors import UnreadableFileError, escaped
from tokengraft.vocab_plan import VocabPlan

CAUSAL, SENTENCES = "AutoModelForCausalLM", "SentenceTransformer"
_FRONT_MATTER = re.compile(rb"(?:\xef\xbb\xbf)?---[ \t]*\r?\n(.*?)^---[ \t]*(?:\r?\n|\Z)", re.DOTALL | re.MULTILINE)
_KEPT = ("language", "license", "license_name", "license_link", "pipeline_tag", "tags")
"""Fields of a source's card that are still true. Others, such as `model-index`, are about the source alone."""
_SCALAR = re.compile(r"\"([^\"\\]*)\"|'([^']*)'|([\w./][\w ./:@+()#%=&?~-]*?)(?:\s+#.*)?")
_REPOSITORY = re.compile(r"[\w.-]{1,96}(/[\w.-]{1,96})?", re.ASCII)
_LANGUAGES = (
    "aa ab ae af ak am an ar as av ay az ba be bg bh bi bm bn bo br bs ca ce ch co cr cs cu cv cy da de dv dz ee el en "
    "eo es et eu fa ff fi fj fo fr fy ga gd gl gn gu gv ha he hi ho hr ht hu hy hz ia id ie ig ii ik io is it iu ja jv "
    "ka kg ki kj kk kl km kn ko kr ks ku kv kw ky la lb lg li ln lo lt lu lv mg mh mi mk ml mn mr ms mt my na nb nd ne "
    "ng nl nn no nr nv ny oc oj om or os pa pi pl ps pt qu rm rn ro ru rw sa sc sd se sg si sk sl sm sn so sq sr ss st "
    "su sv sw ta te tg th ti tk tl tn to tr ts tt tw ty ug uk ur uz ve vi vo wa wo xh yi yo za zh zu code"
)
"""What hubs take as a language: ISO 639-1, and `code`. A text with such a name is taken for text in that language."""

_UNTRAINED, _UNCHANGED = "**The rows of ", "those of the source, byte for byte"
"""How the paragraph about untrained rows begins, and what is said of other weights: not true of a trained model."""


@dataclass(frozen=True)
class CardFacts:
    """What the step that writes a card knows. Texts are Markdown."""

    made: str
    """How it was made."""
    measured: str
    """What was measured, on what, and what was not."""
    changes: Sequence[tuple[str, str]] = ()
    """More rows for the table of changes."""
    texts: Iterable[str] = ()
    """The names of the texts that tokens were learned from or kept for."""
    is_adapter: bool = False
    """Whether it is an adapter of PEFT for the source, and no model."""


def model_card(
    source: str | os.PathLike[str], changes: VocabPlan, transplant: Transplant | None, facts: CardFacts
) -> bytes:
    """The card of a result; without weights, ``transplant`` is None."""
    path, name = Path(source), base_name(source)
    raw = _source_card(path / CARD)
    found = _FRONT_MATTER.match(raw)
    fields = _fields(found[1].decode(errors="replace")) if found else {}
    below = raw[found.end() :] if found else raw
    parts = [
        _front_matter(path, name, fields, facts),
        f"# {code(name)} with a changed vocabulary",
        _state(changes, transplant),
        "## What was changed",
        table(["", ""], [*_changes(changes, transplant), *facts.changes]),
        "## What was measured",
        facts.measured,
        "## How to load it",
        _loading(path, name if facts.is_adapter else None, weighted=transplant is not None),
        "## How it was made",
        facts.made,
    ]
    if below.strip():
        dropped = ", ".join(code(field) for field in fields if field not in _KEPT)
        left_out = f" Its front matter also had {dropped}, which may not be true of this one." if dropped else ""
        about = f"What follows is the card of {code(name)}, before the change. Its figures are not of this model."
        parts += ["## Card of the source", about + left_out]
    return "\n\n".join(parts).encode() + b"\n" + (b"\n" + below.lstrip() if below.strip() else b"")


def trained_card(folders: Iterable[Path], state: str, section: str) -> bytes:
    """The card of a model after training: the first that one of the folders has, with what was done since.

    ``state`` replaces the paragraph about untrained rows; ``section`` is put before the one about loading.
    """
    cards = [(folder, text) for folder in folders if (text := _source_card(folder / CARD).decode(errors="replace"))]
    name, text = next(((base_name(folder), text) for folder, text in cards), ("model", ""))
    if not text.strip():
        return f"# {code(name)}\n\n{state}\n\n{section}\n".encode()
    text = text.replace(f"| all other weights | {_UNCHANGED} |", "| all other weights | changed by training |")
    parts = re.split(r"\n{2,}", text)
    at = next((at for at, part in enumerate(parts) if part.startswith(_UNTRAINED)), None)
    if at is None:
        at = next((at for at, part in enumerate(parts) if part.startswith("# ")), 0) + 1
        parts.insert(at, state)
    else:
        parts[at] = state
    heads = ("## How to load it", "## How it was made", "## Card of the source")
    place = next((at for at, part in enumerate(parts) if part.startswith(heads)), len(parts))
    return "\n\n".join([*parts[:place], section, *parts[place:]]).rstrip("\n").encode() + b"\n"


def _source_card(path: Path) -> bytes:
    try:
        return path.read_bytes() if path.is_file() else b""
    except OSError as error:
        raise UnreadableFileError(f"cannot read `{path}`: {error.strerror}", hint="check its permissions") from error


def base_name(source: str | os.PathLike[str]) -> str:
    """What a card calls the source: the name on the hub if it is known, otherwise that of its folder.

    >>> base_name("org/name"), base_name("/cache/models--org--name/snapshots/0123"), base_name("/models/name")
    ('org/name', 'org/name', 'name')
    """
    path = Path(source)
    if not path.is_absolute() and not path.exists():
        return os.fspath(source)
    whole = path.resolve()
    cached = [part for part in whole.parts if part.startswith("models--")]
    if cached:
        return cached[-1].removeprefix("models--").replace("--", "/")
    return (whole.parent if whole.is_file() else whole).name


def size_text(n_bytes: int) -> str:
    """A size of text.

    >>> size_text(60_000), size_text(14_020_000)
    ('60,000 bytes', '14.0 MB')
    """
    return f"{n_bytes / 1e6:,.1f} MB" if n_bytes >= 1e6 else f"{n_bytes:,} bytes"


def public_command(words: Iterable[str]) -> str:
    """A command as a block of Markdown. Of paths outside the current folder, only the last part is shown.

    >>> print(public_command(["tokengraft", "adapt", "/home/me/model", "--target", "et=/data/et.txt:2", "en/*.txt"]))
    ```sh
    tokengraft adapt model --target et=et.txt:2 'en/*.txt'
    ```
    """
    return block(escaped(shlex.join(map(_public, words))).replace("\n", "\\n"), "sh")


def _public(word: str) -> str:
    name, equals, value = word.partition("=") if re.match(r"[\w.-]+=", word) else ("", "", word)
    value = re.sub(r"^(\w+://)[^/]*@", r"\1", value)  # a name and a password
    value = re.sub(r"^(https?://[^?]*)\?.*", r"\1", value)  # may be a signature
    outside = value.startswith(("/", "~", "..", "\\", "file:")) or re.match(r"[A-Za-z]:[\\/]", value)
    return name + equals + (re.split(r"[\\/]", value.rstrip("\\/"))[-1] if outside else value)


def code(text: str) -> str:
    """A text as inline code: nothing in it is markup.

    >>> code("a*b"), code("`"), code("a\\n# b")
    ('`a*b`', '`` ` ``', '`a\\\\n# b`')
    """
    shown = escaped(text).replace("\n", "\\n").strip() or "?"
    fence = "`" * (1 + max(map(len, re.findall("`+", shown)), default=0))
    space = " " if shown[0] == "`" or shown[-1] == "`" else ""
    return f"{fence}{space}{shown}{space}{fence}"


def block(text: str, language: str) -> str:
    """A text as a block of code, with a fence that is longer than any in it."""
    fence = "`" * (1 + max(2, *map(len, re.findall("`+", text)), 0))
    return f"{fence}{language}\n{text}\n{fence}"


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table of Markdown. A bar would end a cell, in code too."""
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


def _front_matter(source: Path, name: str, fields: Mapping[str, list[str]], facts: CardFacts) -> str:
    library = "sentence-transformers" if (source / MODULES).is_file() else "transformers"
    library = "peft" if facts.is_adapter else library
    languages = [*fields.get("language", ()), *(text for text in facts.texts if text in _LANGUAGES.split())]
    lists = {"language": languages, "tags": [*fields.get("tags", ()), "tokengraft"]}
    values = {"base_model": [name] if _REPOSITORY.fullmatch(name) else [], "library_name": [library]}
    values |= {field: fields.get(field, []) for field in _KEPT} | lists
    lines = list[str]()
    for field, given in values.items():
        # Strings of YAML. Everything that is not printable is escaped: some of it would end a line.
        strings = (json.dumps(value, ensure_ascii=False) for value in dict.fromkeys(given))
        quoted = ["".join(c if c.isprintable() else f"\\U{ord(c):08x}" for c in string) for string in strings]
        if field in lists or len(quoted) > 1:
            lines += [f"{field}:", *(f"- {value}" for value in quoted)] if quoted else []
        else:
            lines += [f"{field}: {value}" for value in quoted]
    text = "\n".join(["---", *lines, "---"])
    if "/" in name:
        return text
    return text + "\n\n<!-- Before you publish this, set `base_model` to the name of the source on the hub. -->"


def _fields(text: str) -> dict[str, list[str]]:
    """The fields of front matter with their values; no values if a field has others than plain ones."""
    fields = dict[str, list[str]]()
    for part in re.split(r"^(?=[\w-]+:(?:\s|$))", text, flags=re.MULTILINE)[1:]:
        name, _, rest = part.partition(":")
        lines = [line for line in map(str.strip, rest.splitlines()) if line and not line.startswith("#")]
        in_brackets = len(lines) == 1 and lines[0].startswith("[") and lines[0].endswith("]")
        items = lines[0][1:-1].split(",") if in_brackets else [line.removeprefix("- ") for line in lines]
        is_list = in_brackets or all(line.startswith("- ") for line in lines)
        found = [_SCALAR.fullmatch(item.strip()) for item in items if is_list or len(lines) == 1]
        values = [next(filter(None, match.groups()), "") for match in found if match]
        plain = len(values) == len(items) and all(v and ": " not in v and not v.endswith(":") for v in values)
        fields[name] = values if plain else []
    return fields


def _state(changes: VocabPlan, transplant: Transplant | None) -> str:
    """What must be known before it is used."""
    added = changes.summary.added
    earlier = len(transplant.untrained) if transplant else 0
    if transplant is None:
        more = f"A model needs {added:,} new rows for it" if added else "A model needs other rows for it"
        return f"**This is a tokenizer without a model.** {more}: `tokengraft transplant`."
    if added or earlier:
        which = f"{added:,} new tokens{f', and {earlier:,} of an earlier adaptation,' if earlier else ''}"
        return (
            f"{_UNTRAINED}{which} are untrained.** They are computed from rows of the source, and the "
            "model has never seen these tokens. Train it before you use it. Delete this paragraph once it is trained."
        )
    return "No row is new. The model has never read the words of removed tokens as shorter tokens."


def _changes(changes: VocabPlan, transplant: Transplant | None) -> Iterator[tuple[str, str]]:
    summary = changes.summary
    yield "tokens", f"{summary.added:,} new, {summary.removed:,} removed, {summary.kept + summary.moved:,} kept"
    yield "ids of kept tokens", f"{summary.moved:,} changed" if summary.moved else "unchanged"
    if transplant is None:
        yield "ids", f"{summary.rows_before:,} → {summary.rows_after:,}"
        return
    rows = transplant.rows_before, transplant.rows_after
    padded = ", with padding" if rows != (summary.rows_before, summary.rows_after) else ""
    yield "embedding rows", f"{rows[0]:,} → {rows[1]:,}{padded}"
    if summary.added:
        same = transplant.tied or len({*transplant.init}) == 1
        first, second = map(code, transplant.init)
        yield "initialiser of new rows", first if same else f"{first} for the input, {second} for the output"
    yield "all other weights", _UNCHANGED


def _loading(source: Path, base: str | None = None, *, weighted: bool) -> str:
    """Code that loads the folder; with the name of its base, if it is an adapter."""
    if base is not None:
        load = f"base = {CAUSAL}.from_pretrained({json.dumps(base)})  # the source\n"
        load += 'model = PeftModel.from_pretrained(base, ".")\ntokenizer = AutoTokenizer.from_pretrained(".")'
        classes = f"from transformers import {CAUSAL}, AutoTokenizer"
        return block(f"from peft import PeftModel\n{classes}\n\n{load}", "python")
    here = 'folder = "."  # or the name on a hub'
    tokenizer = "tokenizer = AutoTokenizer.from_pretrained(folder)"
    if not weighted:
        return block(f"from transformers import AutoTokenizer\n\n{here}\n{tokenizer}", "python")
    kind = model_class(source)
    if kind == SENTENCES:
        return block(f"from sentence_transformers import {kind}\n\n{here}\nmodel = {kind}(folder)", "python")
    classes = ", ".join(sorted(("AutoTokenizer", kind)))
    load = f"{here}\nmodel = {kind}.from_pretrained(folder)\n{tokenizer}"
    return block(f"from transformers import {classes}\n\n{load}", "python")


def model_class(source: Path) -> str:
    """The class that loads a model folder: the one that its config names, if it is a name, else one for its type.

    A causal model has `AutoModelForCausalLM`, and a folder of sentence-transformers the class of that library.
    """
    if (source / MODULES).is_file():
        return SENTENCES
    config = read_config(source / CONFIG)
    if not isinstance(config, dict):
        return "AutoModel"
    names = config.get("architectures")
    if isinstance(names, list) and names:
        name = str(names[0])
        if name.endswith(("ForCausalLM", "LMHeadModel")):
            return CAUSAL
        return name if re.fullmatch(r"[A-Z]\w{2,99}", name, re.ASCII) else "AutoModel"
    has_encoder = class_with_encoder(config) or config.get("is_encoder_decoder")
    return CAUSAL if config.get("model_type") and not has_encoder else "AutoModel"


def made_by(how: str, record: str) -> str:
    """How it was made, and where the record is."""
    return f"{how}\n\nMade by tokengraft {_core.__version__}. {code(record)} has the inputs with their hashes."
