"""Data for `train.py`: tokenizers of many sizes, learned on a part or on all of the text, for one target language.

    python -m lab.experiments.training.study MODEL --target et=et.parquet --keep en=en.parquet --flores devtest \
        --megabytes 11 45 --out DIR

An arm is named by kind, number of tokens, megabytes of the target it was learned on, and what is special about it:
`add-2000-11`, `add-2000-11-documents`. The documents are in `DIR/LANGUAGE.json`, in an order that depends only
on their text, so that a run reads the first megabytes of each (`Run.target_bytes`, `Run.keep_share`).
"""

import json
import tempfile
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

import tokengraft as tg
from lab.experiments.data import digest
from lab.experiments.languages import language_of
from lab.experiments.training.data import Corpus, chunks, corpus, parser_of, save_arm, up_to, write_json
from tokengraft import _core

SIZES = (250, 500, 1_000, 2_000, 4_000, 8_000)
SWAPPED = (1_000, 2_000, 8_000)
IDEAS = (500, 1_000, 2_000)
"""Sizes of the arms whose tokens are chosen in another way."""
KEEP_SHARE = 0.2
"""Of the text that tokenizers are made with."""
MAX_SHARE = 0.2
"""A source that has a larger share of the text counts as if it had this one, for the arms `sources`."""


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--megabytes", type=int, nargs="+", default=(11, 45), help="of the target, to learn tokens on")
    parser.add_argument("--keep-bytes", type=int, default=22_000_000)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    most = {options.target: round(max(options.megabytes) * 1e6), options.keep: options.keep_bytes}
    target, keep = (write_text(options.out, role, options.flores, size) for role, size in most.items())
    base, arms = tg.load(options.model), options.out / target.language / "arms"
    arms.mkdir(parents=True)
    save_arm(base, base, arms / "base")
    write_json(arms.parent / "data.json", {"target": target.language, "keep": keep.language})
    for megabytes in options.megabytes:
        write_arms(arms, base, target, keep, megabytes)


def write_text(out: Path, role: str, flores: Path, size: int) -> Corpus:
    """Writes the documents of a language with the source of each, and the text that is scored; and returns them."""
    language, path = role.split("=")
    table = pq.read_table(path)
    columns = (table[name].to_pylist() for name in ("text", "source"))
    found = {text.strip(): source for text, source in zip(*columns, strict=True)}
    texts = sorted((text for text in found if text), key=digest)
    lines = (flores / f"{language_of(language).flores}.devtest").read_text(encoding="utf-8").splitlines()
    made = corpus(language, texts[len(texts) // 20 :], texts[: len(texts) // 20], lines, size)
    scored = {"held": [part for text in made.held_out for part in chunks(text)], "flores": lines}
    sources = [found[text] for text in made.train]
    write_json(out / f"{language}.json", {"documents": made.train, "sources": sources, **scored})
    return replace(made, sentences=sources)


def write_arms(arms: Path, base: tg.Tokenizer, target: Corpus, keep: Corpus, megabytes: int) -> None:
    texts = [*up_to(target.train, round(megabytes * 1e6))]
    size = sum(len(text.encode()) for text in texts)
    kept = [*up_to(keep.train, round(size * KEEP_SHARE / (1 - KEEP_SHARE)))]
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        for role, documents in (("target", texts), ("keep", kept)):
            lines = (json.dumps({"text": text}) + "\n" for text in documents)
            (folder / f"{role}.jsonl").write_text("".join(lines), encoding="utf-8")
        tg.save(base, folder / "tokenizer")
        for name, preserve in (("add", True), ("free", False)):
            extension = adapted(folder, add=max(SIZES), preserve_keep=preserve).extension
            for n in SIZES if preserve else (2_000, 8_000):
                save_arm(base, extension[:n].apply(base), arms / f"{name}-{n}-{megabytes}")
        for n in SWAPPED:
            save_arm(base, adapted(folder, swap=n).tokenizer, arms / f"swap-{n}-{megabytes}")
    preserved = tg.count(base, iter(kept))
    sources = target.sentences[: len(texts)]
    for name, counts in (("documents", by_documents), ("sources", by_sources)):
        extension = tg.extend(base, counts(base, texts, sources), max(IDEAS), preserve=preserved)
        for n in IDEAS:
            save_arm(base, extension[:n].apply(base), arms / f"add-{n}-{megabytes}-{name}")


def adapted(folder: Path, *, preserve_keep: bool = False, **size: int) -> tg.Adaptation:
    text = {role: folder / f"{role}.jsonl" for role in ("target", "keep")}
    options = tg.AdaptOptions(preserve_keep=preserve_keep, report=False, quiet=True, force=True)
    return tg.adapt(folder / "tokenizer", out=folder / "out", options=options, **text, **size)


def by_documents(base: tg.Tokenizer, texts: Sequence[str], _: object) -> tg.PretokenCounts:
    """Every pretoken counts once for each document that it is in."""
    split = base.to_tokenizers().pre_tokenizer.pre_tokenize_str
    found: Counter[str] = Counter()
    for text in texts:
        found.update({piece for piece, _ in split(text)})
    return counts_of(base, texts, found)


def counts_of(base: tg.Tokenizer, texts: Iterable[str], found: Counter[str]) -> tg.PretokenCounts:
    """Counts of the same pretokens with other numbers."""
    counts = tg.count(base, iter(texts))
    pretokens = [piece for piece, _ in counts.top(len(counts))]
    letter = _letters()
    numbers = {bytes(letter[c] for c in piece): n for piece, n in found.items()}
    missing = [piece for piece in pretokens if piece not in numbers]
    if missing:
        raise ValueError(f"{len(missing):,} pretokens are split in another way, such as {missing[0]!r}")
    ordered = sorted(pretokens)
    ends = np.cumsum([0, *map(len, ordered)], dtype=np.uint64)
    numbers = np.array([numbers[piece] for piece in ordered], np.uint64)
    return replace(counts, table=_core.Counts(b"".join(ordered), ends.tobytes(), numbers.tobytes()))


def _letters() -> dict[str, int]:
    """The byte of each letter of the byte-level alphabet."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in plain]
    return {chr(byte): byte for byte in plain} | {chr(256 + place): byte for place, byte in enumerate(others)}


def by_sources(base: tg.Tokenizer, texts: Sequence[str], sources: Sequence[str]) -> tg.PretokenCounts:
    """Large sources count less."""
    bytes_of: Counter[str] = Counter()
    for text, source in zip(texts, sources, strict=True):
        bytes_of[source] += len(text.encode())
    limit = MAX_SHARE * sum(bytes_of.values())
    parts = []
    for source, size in bytes_of.items():
        own = tg.count(base, (text for text, other in zip(texts, sources, strict=True) if other == source))
        parts.append(own.scale(round(100 * min(1, limit / size))))
    print({source: round(min(1, limit / size), 2) for source, size in bytes_of.items()})
    return sum(parts)


if __name__ == "__main__":
    main()
