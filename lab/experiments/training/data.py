"""Data for `train.py`: documents to train on, text to score, and a tokenizer with its plan for every arm.

    python -m lab.experiments.training.data MODEL --target et=et.parquet --keep en=en.parquet --flores devtest \
        --target-bytes 45000000 --keep-bytes 5000000 --swap 2000 8000 --naive 8000 --out DIR

Documents are held out by their hash before anything else. A held-out document of which a third or more of the sequences
of eight words also occur in the training text is dropped: the corpora have many near-duplicates.
"""

import argparse
import json
import lzma
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow.parquet as pq

import tokengraft as tg
from lab.experiments.data import digest
from lab.experiments.data import up_to as first_texts
from lab.experiments.languages import language_of

HELD_BYTES = 600_000
"""The most bytes of held-out text of each language that are scored at the end."""
CHOICE_BYTES = 300_000
"""The most bytes of other held-out text, on which recipes are chosen."""
KINDS = ("swap", "add", "naive", "joined")
"""Arms beside the unchanged tokenizer; each is named by its kind and its number of tokens."""
CHUNK = 1_500
"""The most bytes that are scored together."""


@dataclass(frozen=True)
class Corpus:
    """The text of one language."""

    language: str
    train: list[str]
    held_out: list[str]
    sentences: list[str]
    """Of FLORES."""


@dataclass(frozen=True)
class Sizes:
    """The arms beside the unchanged tokenizer, by numbers of tokens."""

    swap: Sequence[int] = (8_000,)
    """Pruned, and as many learned."""
    add: Sequence[int] = ()
    """Learned, with text of the kept language preserved."""
    naive: Sequence[int] = ()
    """The same tokens pruned as for `swap`, and as many inserted by `naive-regen`."""
    joined: Sequence[int] = ()
    """As `add`, with combining marks of `join_marks` in words."""
    join_marks: Sequence[str] = ()
    learn_bytes: int | None = None
    """Of each text, the first bytes that tokens are learned on; all if None."""


def parser_of(description: str | None) -> argparse.ArgumentParser:
    """A parser with the model, the texts and FLORES."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path, help="folder of the model, or of its tokenizer")
    parser.add_argument("--target", required=True, metavar="LANGUAGE=PARQUET")
    parser.add_argument("--keep", required=True, metavar="LANGUAGE=PARQUET")
    parser.add_argument("--flores", type=Path, required=True, help="folder of FLORES-200 devtest")
    return parser


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--target-bytes", type=int, default=45_000_000)
    parser.add_argument("--keep-bytes", type=int, default=5_000_000)
    for name in KINDS:
        parser.add_argument(f"--{name}", type=int, nargs="*", default=getattr(Sizes(), name))
    parser.add_argument("--join-marks", nargs="*", default=(), metavar="SCRIPT", help="for --joined")
    parser.add_argument("--learn-bytes", type=int, help="of each text, to learn tokens on; all unless given")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    corpora = []
    for role, size in ((options.target, options.target_bytes), (options.keep, options.keep_bytes)):
        language, path = role.split("=")
        texts = documents(path)
        lines = (options.flores / f"{language_of(language).flores}.devtest").read_text(encoding="utf-8").splitlines()
        # One document in 20 is a candidate to be scored.
        parts = texts[len(texts) // 20 :], texts[: len(texts) // 20]
        corpora.append(corpus(language, *parts, lines, size, CHOICE_BYTES + HELD_BYTES))
    write_data(
        options.out,
        tg.load(options.model),
        *corpora,
        Sizes(**{name: getattr(options, name) for name in (*KINDS, "join_marks", "learn_bytes")}),
    )


def corpus(
    language: str,
    train: Iterable[str],
    held_out: Iterable[str],
    sentences: Iterable[str],
    size: int,
    held_bytes: int = HELD_BYTES,
) -> Corpus:
    """So many bytes of text to train on, and held-out documents that are not nearly among them."""
    chosen = list(up_to(train, size))
    seen = {sequence for text in chosen for sequence in sequences(text)}
    apart = [text for text in held_out if share(text, seen) < 1 / 3]
    found = Corpus(language, chosen, list(up_to(apart, held_bytes)), [*sentences])
    sizes = [sum(len(text.encode()) for text in texts) for texts in (found.train, found.held_out)]
    print(f"{language}: {len(chosen):,} documents, {sizes[0]:,} bytes; {len(found.held_out):,}, {sizes[1]:,} held out")
    return found


def write_data(out: Path, base: tg.Tokenizer, target: Corpus, keep: Corpus, sizes: Sizes) -> None:
    """Writes the folder that `train.py` reads."""
    out.mkdir(parents=True)
    document_of = {}
    for text in (target, keep):
        first = list(up_to(text.held_out, sum(len(document.encode()) for document in text.held_out) // 3))
        for part, documents in (("held", first), ("test", text.held_out[len(first) :])):
            parts = [(chunk, place) for place, document in enumerate(documents) for chunk in chunks(document)]
            write_json(out / f"{text.language}_{part}.json", [chunk for chunk, _ in parts])
            document_of[f"{text.language}_{part}"] = [place for _, place in parts]
        write_json(out / f"{text.language}_flores.json", text.sentences)
    texts = [*target.train, *keep.train]
    document_of["train"] = [0] * len(target.train) + [1] * len(keep.train)
    write_json(out / "documents.json", document_of)
    with lzma.open(out / "train.json.xz", "wt", encoding="utf-8") as file:
        json.dump(texts, file, ensure_ascii=False)
    most = sizes.learn_bytes or 1 << 40
    write_arms(out / "arms", base, *([*up_to(text.train, most)] for text in (target, keep)), sizes)


def up_to(texts: Iterable[str], size: int) -> Iterator[str]:
    """The first texts, as many as fit into a number of bytes."""
    return first_texts(texts, size, lambda text: len(text.encode()))


def documents(path: str) -> list[str]:
    """All documents of a file, in an order that depends only on their text."""
    texts = {text.strip() for text in pq.read_table(path, columns=["text"]).column("text").to_pylist()}
    return sorted((text for text in texts if text), key=digest)


def sequences(text: str) -> Iterator[int]:
    words = text.split()
    return (hash(tuple(words[at : at + 8])) for at in range(max(1, len(words) - 7)))


def share(text: str, seen: set[int]) -> float:
    found = [sequence in seen for sequence in sequences(text)]
    return sum(found) / len(found)


def chunks(text: str) -> Iterator[str]:
    """Parts of at most `CHUNK` bytes that end at white space where there is some. The same for every tokenizer."""
    data = text.encode()
    while len(data) > CHUNK:
        at = max(data.rfind(b" ", 1, CHUNK), data.rfind(b"\n", 1, CHUNK))
        if at < 0:
            at = next(place for place in range(CHUNK, 0, -1) if data[place] & 0xC0 != 0x80)
        yield data[:at].decode()
        data = data[at:]
    yield data.decode()


def write_arms(arms: Path, base: tg.Tokenizer, target: list[str], keep: list[str], sizes: Sizes) -> None:
    counts = tg.count(base, iter(target))
    arms.mkdir()
    counts.save(arms / "counts.parquet")
    save_arm(base, base, arms / "base")
    with tempfile.TemporaryDirectory() as scratch:
        for kind in KINDS:
            marks = tuple(sizes.join_marks) if kind == "joined" else ()
            for size in getattr(sizes, kind):
                option = "add" if kind in ("add", "joined") else "swap"
                made = adapted(Path(scratch), base, target, keep, f"{kind}-{size}", marks, **{option: size})
                tokenizer = made.tokenizer
                if kind == "naive":
                    tokenizer = tg.learn.extend_naively(made.order.apply(base), counts, size)
                save_arm(base, tokenizer, arms / f"{kind}-{size}")


def adapted(
    folder: Path,
    base: tg.Tokenizer,
    target: list[str],
    keep: list[str],
    name: str,
    join_marks: tuple[str, ...] = (),
    **size: int,
) -> tg.Adaptation:
    """What `tg.adapt` makes. Tokens that are added leave the kept text as it is."""
    if not (folder / "tokenizer").exists():
        tg.save(base, folder / "tokenizer")
        for role, texts in (("target", target), ("keep", keep)):
            lines = (json.dumps({"text": text}) + "\n" for text in texts)
            (folder / f"{role}.jsonl").write_text("".join(lines), encoding="utf-8")
    text = {role: folder / f"{role}.jsonl" for role in ("target", "keep")}
    options = tg.AdaptOptions(
        hold_out=tg.counts.HoldOut(one_in=max(2, min(50, len(keep) // 8))),  # 50 unless there is little
        preserve_keep="add" in size,
        join_marks=join_marks,
        report=False,
    )
    return tg.adapt(folder / "tokenizer", out=folder / name, options=options, **text, **size)


def save_arm(base: tg.Tokenizer, tokenizer: tg.Tokenizer, folder: Path) -> None:
    """The tokenizer, and where its rows come from."""
    tg.save(tokenizer, folder, verify=False)
    tg.plan(base, tokenizer).save(folder / "plan.json")


def write_json(path: Path, value: object) -> None:
    path.write_text(json.dumps(value, ensure_ascii=False), encoding="utf-8")


if __name__ == "__main__":
    main()
