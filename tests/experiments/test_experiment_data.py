"""Where experiments find their data."""

import doctest
import importlib
import json

import pytest
from small_corpora import documents

import tokengraft as tg
from lab.experiments.data import Folder, digest, open_data


@pytest.mark.parametrize("module", ["data", "languages", "tables", "extension_gains", "domain", "model_compression"])
def test_examples_in_docstrings_hold(module):
    assert doctest.testmod(importlib.import_module(f"lab.experiments.{module}")).failed == 0


def test_corpora_are_files_or_folders(data_folder):
    assert Folder(data_folder / "corpora").languages() == ["ar", "de", "en", "et", "hi"]


@pytest.mark.parametrize("language", ["et", "en", "ar", "de"])
def test_a_document_is_learned_from_or_held_out(data_folder, language):
    found = Folder(data_folder / "corpora").documents(language, 10**9)
    assert sorted((*found.train, *found.held_out)) == sorted(documents(language))
    assert not set(found.train) & set(found.held_out)
    assert found.held_out


def test_the_order_of_documents_does_not_depend_on_files(data_folder):
    found = Folder(data_folder / "corpora").documents("en", 10**9)
    assert [*found.train] == sorted(found.train, key=lambda text: (digest(text), text))


def test_a_smaller_budget_is_the_beginning_of_a_larger_one(data_folder):
    folder = Folder(data_folder / "corpora")
    small, large = (folder.documents("et", budget).train for budget in (5_000, 9_000))
    assert large[: len(small)] == small
    assert 4_000 < sum(map(len, small)) <= 5_000


def test_the_identity_of_a_corpus_changes_with_its_text(tmp_path):
    (tmp_path / "et.txt").write_text("a\nb", encoding="utf-8")
    before = Folder(tmp_path).identity("et", 9)
    other = tmp_path / "other"
    other.mkdir()
    (other / "et.txt").write_text("a\nc", encoding="utf-8")
    assert Folder(other).identity("et", 9) != before
    assert str(tmp_path) not in json.dumps(before)


@pytest.mark.parametrize("layout", ["flores200", "flores200/devtest", "devtest"])
def test_unpacked_archives_are_found(tmp_path, layout):
    """As they unpack: tokenizers beside `devtest`, without folders of their own."""
    (tmp_path / layout).mkdir(parents=True)
    (tmp_path / layout / "est_Latn.devtest").write_text("üks\nkaks\n", encoding="utf-8")
    (tmp_path / "llama3").mkdir()
    data = open_data(str(tmp_path))
    assert data.sentences("et") == ("üks", "kaks")
    assert data.tokenizer_folder("llama3") == tmp_path / "llama3"


def test_sentences_that_are_missing_are_named(tmp_path):
    with pytest.raises(tg.TokengraftError, match="fin_Latn"):
        open_data(str(tmp_path)).sentences("fi")


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("et.parquet", b"PAR1"),
        ("et.jsonl", b'{"text": 3}'),
        ("et.txt", b"\xff\xfe"),
    ],
)
def test_a_damaged_file_is_named(name, data, tmp_path):
    (tmp_path / name).write_bytes(data)
    with pytest.raises(tg.TokengraftError, match=r"et\.[a-z]+` cannot be read"):
        Folder(tmp_path).documents("et", 10)
