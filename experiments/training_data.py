"""Data for `training.py`: documents to train on, text to score, and a tokenizer with its plan for every arm.

    python experiments/training_data.py MODEL --target et=et.parquet --keep en=en.parquet --flores devtest \
        --target-bytes 45000000 --keep-bytes 5000000 --swap 2000 8000 --add 8000 --out DIR

Documents are held out by their hash before anything else. A held-out document of which a third or more of the sequences
of eight words also occur in the training text is dropped: the corpora have many near-duplicates.
"""

import argparse
import hashlib
import json
import lzma
import random
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path

import pyarrow.parquet as pq

import tokengraft as tg

FLORES = {"et": "est_Latn", "en": "eng_Latn", "ar": "arb_Arab", "ru": "rus_Cyrl", "hi": "hin_Deva", "fi": "fin_Latn"}
CHUNK = 1_500
"""The most bytes that are scored together."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path, help="folder of the model, or of its tokenizer")
    parser.add_argument("--target", required=True, metavar="LANGUAGE=PARQUET")
    parser.add_argument("--keep", required=True, metavar="LANGUAGE=PARQUET")
    parser.add_argument("--flores", type=Path, required=True, help="folder of FLORES-200 devtest")
    parser.add_argument("--target-bytes", type=int, default=45_000_000)
    parser.add_argument("--keep-bytes", type=int, default=5_000_000)
    parser.add_argument("--held-bytes", type=int, default=600_000, help="most bytes of held-out text of each language")
    parser.add_argument("--swap", type=int, nargs="*", default=[8_000])
    parser.add_argument("--add", type=int, nargs="*", default=[])
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    options.out.mkdir(parents=True)
    corpora = {}
    for role, size in (("target", options.target_bytes), ("keep", options.keep_bytes)):
        language, path = getattr(options, role).split("=")
        train, held = split(documents(path), size, options.held_bytes)
        corpora[role] = train
        write_json(options.out / f"{language}_held.json", [chunk for text in held for chunk in chunks(text)])
        lines = (options.flores / f"{FLORES[language]}.devtest").read_text(encoding="utf-8").splitlines()
        write_json(options.out / f"{language}_flores.json", lines)
        describe(language, train, held)
    texts = corpora["target"] + corpora["keep"]
    random.Random(0).shuffle(texts)
    with lzma.open(options.out / "train.json.xz", "wt", encoding="utf-8") as file:
        json.dump(texts, file, ensure_ascii=False)
    make_arms(options, corpora)


def documents(path: str) -> list[str]:
    """All documents of a file, in an order that depends only on their text."""
    texts = {text.strip() for text in pq.read_table(path, columns=["text"]).column("text").to_pylist()}
    return sorted((text for text in texts if text), key=digest)


def digest(text: str) -> bytes:
    return hashlib.blake2b(text.encode(), digest_size=8).digest()


def split(texts: list[str], size: int, held_size: int) -> tuple[list[str], list[str]]:
    """Documents to train on, and held-out ones that are not nearly among them."""
    candidates, rest = texts[: len(texts) // 20], texts[len(texts) // 20 :]
    train = list(up_to(rest, size))
    seen = {sequence for text in train for sequence in sequences(text)}
    held = [text for text in candidates if share(text, seen) < 1 / 3]
    return train, list(up_to(held, held_size))


def up_to(texts: Iterable[str], size: int) -> Iterator[str]:
    for text in texts:
        size -= len(text.encode())
        if size < 0:
            return
        yield text


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


def make_arms(options: argparse.Namespace, corpora: dict[str, list[str]]) -> None:
    base = tg.load(options.model)
    paths = {}
    for role, texts in corpora.items():
        paths[role] = options.out / f"{role}.jsonl"
        paths[role].write_text("".join(json.dumps({"text": text}) + "\n" for text in texts), encoding="utf-8")
    arms = options.out / "arms"
    save_arm(base, base, arms / "base")
    source = options.out / "tokenizer"
    tg.save(base, source)
    for kind in ("swap", "add"):
        for size in getattr(options, kind):
            folder = options.out / f"{kind}-{size}"
            done = tg.adapt(source, target=paths["target"], keep=paths["keep"], out=folder, **{kind: size})
            save_arm(base, done.tokenizer, arms / folder.name)
            shutil.rmtree(folder)
    shutil.rmtree(source)
    for path in paths.values():
        path.unlink()


def save_arm(base: tg.Tokenizer, tokenizer: tg.Tokenizer, folder: Path) -> None:
    """The tokenizer, and where its rows come from."""
    tg.save(tokenizer, folder, verify=False)
    tg.plan(base, tokenizer).save(folder / "plan.json")


def write_json(path: Path, value: object) -> None:
    path.write_text(json.dumps(value, ensure_ascii=False), encoding="utf-8")


def describe(language: str, train: list[str], held: list[str]) -> None:
    sizes = [sum(len(text.encode()) for text in texts) for texts in (train, held)]
    print(f"{language}: {len(train):,} documents, {sizes[0]:,} bytes to train on; {len(held):,}, {sizes[1]:,} held out")


if __name__ == "__main__":
    main()
