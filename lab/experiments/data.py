"""Where experiments find text, evaluation sentences and tokenizers.

The layout of a folder, each part of which may be elsewhere (`--flores`, `--tokenizers`):

    DIR/corpora/LANG.parquet            a column `text`, one document per row
    DIR/corpora/LANG/                   or a folder of .parquet, .jsonl (field `text`) and .txt (one document per line)
    DIR/flores200/LANG_Script.devtest   sentences, one per line; `flores200/devtest` and `devtest` are found too
    DIR/tokenizers/NAME/                tokenizer folders; `DIR/NAME` is found too
"""

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import tokengraft as tg
from lab.experiments.languages import language_of

BUDGET = 100_000_000
"""Characters of text for each language, as in the paper."""
HELD_OUT_DOCUMENTS = 10_000
"""As in the paper."""
HELD_OUT_ONE_IN = 20
FLORES_FOLDERS = ("flores200", "flores200/devtest", "devtest", "flores")


class MissingDataError(tg.TokengraftError):
    """Text, sentences or a tokenizer are missing, or there is too little text. `all` goes on without them."""


@dataclass(frozen=True)
class Documents:
    """The text of a language."""

    train: tuple[str, ...]
    held_out: tuple[str, ...]
    """Documents that nothing is learned from."""


@dataclass(frozen=True)
class Folder:
    """Files of text by language."""

    folder: Path

    def languages(self) -> list[str]:
        """All corpora, by name."""
        if not self.folder.is_dir():
            raise missing(
                self.folder, "no folder of corpora", "pass --data DIR; the layout is in lab/experiments/README.md"
            )
        return sorted(path.stem if path.is_file() else path.name for path in self.folder.iterdir() if _is_corpus(path))

    def files(self, language: str) -> list[Path]:
        """The files of a language, by name."""
        single = [self.folder / f"{language}{kind}" for kind in READERS]
        found = [path for path in single if path.is_file()]
        inside = self.folder / language
        if not found and inside.is_dir():
            found = sorted(path for path in inside.rglob("*") if path.suffix in READERS)
        if not found:
            raise missing(inside, "no text", f"name one of {', '.join(self.languages()) or 'the corpora'}")
        return found

    def documents(self, language: str, budget: int) -> Documents:
        """All text of a language, in an order that depends only on the documents.

        One document in 20, chosen by hash, is held out, and at most 10,000 of those are used.
        """
        texts = [text for path in self.files(language) for text in read_documents(path) if text.strip()]
        hashed = sorted((digest(text), text) for text in texts)
        held_out = [text for key, text in hashed if _is_held_out(key)]
        train = up_to((text for key, text in hashed if not _is_held_out(key)), budget)
        return Documents(tuple(train), tuple(held_out[:HELD_OUT_DOCUMENTS]))

    def identity(self, language: str, budget: int) -> dict[str, object]:
        """The hashes of the files."""
        files = self.files(language)
        return {"files": {path.name: file_hash(path) for path in files}, "characters": budget}


@dataclass(frozen=True)
class Data:
    """Everything that experiments read."""

    source: Folder
    flores: Path
    tokenizers: Path

    def sentences(self, language: str) -> tuple[str, ...]:
        """The evaluation sentences of a language, as they are."""
        return tuple(_lines(self._flores_file(language)))

    def tokenizer_folder(self, name: str) -> Path:
        """The folder of a tokenizer."""
        folder = self.tokenizers / name
        if not folder.is_dir():
            known = sorted(path.name for path in self.tokenizers.iterdir() if any(path.glob("tokenizer*")))
            raise missing(
                folder, "no tokenizer", f"pass --tokenizers DIR, or --models with {', '.join(known) or 'names'}"
            )
        return folder

    def tokenizer(self, name: str) -> tg.Tokenizer:
        """A tokenizer by the name of its folder."""
        return _loaded(self.tokenizer_folder(name))

    def describe(
        self, languages: Iterable[str], models: Iterable[str], budget: int, others: Iterable[str] = ()
    ) -> dict[str, object]:
        """Hashes of everything that is read for some languages, tokenizers and other corpora."""
        languages = list(languages)
        return {
            "corpora": {name: self.source.identity(name, budget) for name in (*languages, *others)},
            "flores": {name: file_hash(self._flores_file(name)) for name in languages},
            "tokenizers": {name: self.tokenizer(name).content_hash for name in models},
        }

    def _flores_file(self, language: str) -> Path:
        path = self.flores / f"{language_of(language).flores}.devtest"
        if not path.is_file():
            raise missing(path, "no evaluation sentences", "pass --flores DIR with the devtest files of FLORES-200")
        return path


def open_data(data: str, flores: str | None = None, tokenizers: str | None = None) -> Data:
    """The data of a folder, with sentences and tokenizers of other folders if they are given."""
    folder = Path(data)
    places = [folder / name for name in FLORES_FOLDERS]
    found = next((place for place in places if any(place.glob("*.devtest"))), places[0])
    inside = folder / "tokenizers"
    return Data(
        Folder(folder / "corpora"),
        Path(flores) if flores else found,
        Path(tokenizers) if tokenizers else inside if inside.is_dir() else folder,
    )


def up_to(texts: Iterable[str], budget: int, size: Callable[[str], int] = len) -> Iterator[str]:
    """The first texts, as many as fit into a number of characters, or of what ``size`` gives.

    >>> list(up_to(["abc", "de", "f"], 5))
    ['abc', 'de']
    """
    for text in texts:
        budget -= size(text)
        if budget < 0:
            return
        yield text


def read_documents(path: Path) -> list[str]:
    """The documents of a file."""
    try:
        return READERS[path.suffix](path)
    except (ValueError, KeyError, TypeError, OSError) as error:  # pyarrow's errors are among them
        raise tg.TokengraftError(
            f"`{path}` cannot be read: {type(error).__name__}: {error}",
            hint="documents are strings in a column or field `text`, or lines of UTF-8; see lab/experiments/README.md",
        ) from error


def digest(text: str) -> bytes:
    """A hash that decides the order of documents, and which are held out."""
    return hashlib.blake2b(text.encode(errors="surrogatepass"), digest_size=8).digest()


@lru_cache(maxsize=256)
def file_hash(path: Path) -> str:
    """The SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def missing(path: Path, what: str, hint: str) -> MissingDataError:
    """The error for data that is not there."""
    return MissingDataError(f"there is {what} at `{path}`", hint=hint)


def _is_held_out(key: bytes) -> bool:
    return key[-1] % HELD_OUT_ONE_IN == 0


def _is_corpus(path: Path) -> bool:
    return path.suffix in READERS or (path.is_dir() and any(inner.suffix in READERS for inner in path.rglob("*")))


@lru_cache(maxsize=4)
def _loaded(folder: Path) -> tg.Tokenizer:
    return tg.load(folder)


def _parquet(path: Path) -> list[str]:
    import pyarrow.parquet as pq

    return [text for text in pq.read_table(path, columns=["text"]).column("text").to_pylist() if text]


def _lines(path: Path) -> list[str]:
    text = path.read_text(encoding="utf-8")
    return text.removesuffix("\n").split("\n") if text else []


def _json_lines(path: Path) -> list[str]:
    return [_text(json.loads(line)["text"]) for line in path.read_text(encoding="utf-8").split("\n") if line.strip()]


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is no string")
    return value


READERS = {".parquet": _parquet, ".jsonl": _json_lines, ".txt": _lines}
