"""A small folder in the layout of the experiments: text in five languages, sentences and tokenizers."""

import json
import random

import builders
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

pytest.importorskip("matplotlib", reason="matplotlib is not installed: experiments are not run")

SYLLABLES = {
    "et": "põ dra ma kas si õu nas ta le ga tu li ko er jä ük si te",
    "en": "the cat ing on tion er an ma ter pro con all re st",
    "ar": "كتا ب مد رس ة بي ت شم س قم ر نو ر ال",
    "hi": "न म स् ते घ र पा नी कि ता ब लो ग",
    "de": "der haus schn ell ung ver ge ten aus lich keit",
}
FLORES = {"et": "est_Latn", "en": "eng_Latn", "ar": "arb_Arab", "hi": "hin_Deva", "de": "deu_Latn"}


def documents(language, n=160, seed=0):
    """Documents of random words; frequent words are the same in all of them."""
    choice = random.Random(f"{language}{seed}")
    parts = SYLLABLES[language].split()
    lexicon = ["".join(random.Random(f"{language}{i}").choices(parts, k=1 + i % 4)) for i in range(150)]
    return [" ".join(choice.choices(lexicon, weights=range(150, 0, -1), k=30)) + f" {i}" for i in range(n)]


@pytest.fixture(scope="session")
def data_folder(tmp_path_factory):
    """`et` as Parquet, `en` as a folder of text, the others as JSON lines or text."""
    folder = tmp_path_factory.mktemp("data")
    (folder / "corpora" / "en").mkdir(parents=True)
    (folder / "flores200").mkdir()
    pq.write_table(pa.table({"text": documents("et"), "source": ["x"] * 160}), folder / "corpora" / "et.parquet")
    for number, start in enumerate((0, 80)):
        part = documents("en")[start : start + 80]
        (folder / "corpora" / "en" / f"{number}.txt").write_text("\n".join(part), encoding="utf-8")
    for language in ("ar", "hi"):
        lines = [json.dumps({"text": text}) + "\n" for text in documents(language)]
        (folder / "corpora" / f"{language}.jsonl").write_text("".join(lines), encoding="utf-8")
    (folder / "corpora" / "de.txt").write_text("\n".join(documents("de")), encoding="utf-8")
    for language, code in FLORES.items():
        text = "\n".join(documents(language, 20, seed=1))
        (folder / "flores200" / f"{code}.devtest").write_text(text, encoding="utf-8")
    builders.write(folder / "tokenizers" / "tiny", builders.byte_level())
    builders.write(folder / "tokenizers" / "skipping", builders.byte_level(ignore_merges=True))
    (folder / "tokenizers" / "pieces").mkdir()
    (folder / "tokenizers" / "pieces" / "tokenizer.model").write_bytes(builders.llama2_like())
    return folder
