"""A small folder in the layout of the experiments: text in five languages, sentences and tokenizers."""

import json

import builders
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from small_corpora import FLORES, documents


@pytest.fixture
def plotting():
    """Skips a test where plots cannot be drawn."""
    pytest.importorskip("matplotlib", reason="matplotlib is not installed: experiments are not run")


@pytest.fixture(scope="session")
def data_folder(tmp_path_factory):
    """`et` as Parquet, `en` as a folder of text, the others as JSON lines or text."""
    folder = tmp_path_factory.mktemp("data")
    (folder / "corpora" / "en").mkdir(parents=True)
    (folder / "flores200").mkdir()
    sources = ["et.ted"] * 60 + ["et.gettext"] * 100
    pq.write_table(pa.table({"text": documents("et"), "source": sources}), folder / "corpora" / "et.parquet")
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
