"""One reader: counting, iterating and measuring agree on every document, and say what they could not read."""

import gzip
import json
import os
import sys
import types
from collections import Counter
from importlib import import_module
from threading import Thread

import builders
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from small_corpora import Trickle, parquet

import tokengraft as tg
from tokengraft import _core, cli, errors
from tokengraft.corpus import blocks
from tokengraft.corpus.files import LocalFile
from tokengraft.counts.pretoken_counts import is_counts_file
from tokengraft.measure import segments
from tokengraft.measure.segments import read_text, token_totals

counting = import_module("tokengraft.counts.threads")
SKIPPING = tg.ReadOptions(documents="lines", skip_bad=True)
LINES = b"\xef\xbb\xbf\xc3\xbcks kaks\r\n\r\n \t\nk\xffolm \n\xc2\xa0\nneli\rviis\r\n"
JSON = (
    b'\xef\xbb\xbf{"text": "a"}\r\n\n  \n{"text": null}\n{"text": 5}\n{"t": "x"}\nbad\n[1]\n'
    b'{"text": ""}\n{"text": "b\\ud800 \xff\\r\\n"}\r\n'
)
CORPORA = {
    "a.txt": (LINES, ["üks kaks", "k\ufffdolm ", "\u00a0", "neli\rviis"], 1, 0),
    "a.txt.gz": (gzip.compress(LINES), ["üks kaks", "k\ufffdolm ", "\u00a0", "neli\rviis"], 1, 0),
    "a.jsonl": (JSON, ["a", "", "b\ufffd \ufffd\r\n"], 2, 5),
    "a.parquet": (parquet(["a", None, "", "\ufeffb", None]), ["a", "", "\ufeffb"], 0, 2),
    "b.parquet": (parquet([b"a\xff", None], pa.binary()), ["a\ufffd"], 1, 1),
}


@pytest.mark.parametrize("name", CORPORA)
def test_every_reader_has_the_same_documents_and_totals(tokenizer, tmp_path, name):
    raw, expected, replaced, skipped = CORPORA[name]
    (tmp_path / name).write_bytes(raw)
    texts, totals = builders.read_documents(tmp_path / name, SKIPPING)
    assert (list(texts), totals.replaced, totals.skipped) == (expected, replaced, skipped)
    counts = tg.count(tokenizer, tmp_path / name, read_options=SKIPPING)
    assert counts.totals == totals + tg.corpus.options.Totals(pretokens=counts.totals.pretokens)
    text = read_text("t", tmp_path / name, SKIPPING)
    assert (text.documents, text.totals) == (texts, totals)
    assert token_totals(tokenizer, text.documents).counted == Counter(counts.tokens(tokenizer))


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes with names here")
@pytest.mark.parametrize("name", CORPORA)
def test_a_pipe_is_read_as_the_file_is(tokenizer, tmp_path, name):
    raw = CORPORA[name][0]
    (tmp_path / name).write_bytes(raw)
    pipe = tmp_path / f"pipe.{name}"
    os.mkfifo(pipe)
    writer = Thread(target=pipe.write_bytes, args=(raw,), daemon=True)
    writer.start()
    piped = tg.count(tokenizer, pipe, read_options=SKIPPING)
    writer.join(10)
    assert piped == tg.count(tokenizer, tmp_path / name, read_options=SKIPPING)


@pytest.mark.parametrize("block", [3, 4, 5, 16, 61, 1 << 20])
@pytest.mark.parametrize("form", ["text", "lines", "jsonl"])
def test_the_blocks_of_a_file_together_are_the_file(tmp_path, tokenizer, monkeypatch, form, block):
    monkeypatch.setattr(blocks, "BLOCK", block)
    path = tmp_path / "t.txt"
    raw = "üks kaks\n\nkolm neli\r\n viis\ufeff 猫猫 ".encode() * 9 + b"\xff last"
    path.write_bytes(b"\xef\xbb\xbf" + raw)
    options = tg.ReadOptions(
        documents="files" if form == "text" else "lines", format="jsonl" if form == "jsonl" else "text"
    )
    counter = _core.Counter(
        tokenizer.skeleton,
        byte_level=True,
        cutter=None,
        spill_folder=None,
        bytes_per_table=1 << 20,
        document_memory=1 << 20,
        hold_out=None,
    )
    cut = blocks.Cut(counter.last_cut, 1 << 20, None, counter)
    read = [*blocks.file_blocks(LocalFile(path), options.format, None, options, cut)]
    assert b"".join(part.data for part in read) == raw
    assert sum(part.progress for part in read) == path.stat().st_size
    assert [part.at_start for part in read] == [True] + [False] * (len(read) - 1)
    assert form == "text" or all(part.data.endswith(b"\n") for part in read[:-1])
    assert len(read) > 5 or block > 16


def test_text_without_a_cut_beyond_the_memory_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(blocks, "BLOCK", 8)
    path = tmp_path / "t.txt"
    path.write_bytes(b"ab\n" + b"x" * 100 + b"\ncd")
    options = tg.ReadOptions(documents="lines", format="text")
    with pytest.raises(errors.CorpusError, match="37 bytes or more"):
        list(blocks.file_blocks(LocalFile(path), "text", None, options, blocks.Cut(lambda _: None, 30)))


def test_documents_are_too_long_by_their_bytes_and_skipped_one_by_one(tokenizer, tmp_path, monkeypatch):
    monkeypatch.setattr(segments, "LONGEST_DOCUMENT", 100)
    (tmp_path / "a.txt").write_text("kass\n" + "õ" * 51 + "\nkoer\n" + "õ" * 50, encoding="utf-8")
    texts = ["kass", "õ" * 51, "koer", "õ" * 50]
    for given in (lambda: str(tmp_path / "a.txt"), lambda: iter(texts)):
        with pytest.raises(errors.CorpusError, match="102 bytes or more"):
            tg.evaluate({"t": tokenizer}, {"x": given()})
        found = tg.evaluate({"t": tokenizer}, {"x": given()}, read_options=SKIPPING)
        assert (found.scores[0].documents, found.scores[0].bytes) == (3, 108)
        assert found.warnings == ("x: 1 documents or files could not be read, or not to their end, and were left out",)


def test_standard_input_is_read_as_it_comes(monkeypatch):
    monkeypatch.setattr("sys.stdin", types.SimpleNamespace(buffer=Trickle(LINES)))
    assert builders.read_documents("-", SKIPPING)[0] == tuple(CORPORA["a.txt"][1])


def test_a_pause_of_standard_input_is_not_its_end(monkeypatch):
    reader, writer = os.pipe()
    os.write(writer, b"text")
    os.close(writer)
    os.set_blocking(reader, False)  # as some parents leave it
    with os.fdopen(reader) as stream:
        monkeypatch.setattr("sys.stdin", stream)
        assert builders.read_documents("-", SKIPPING)[0] == ("text",)
        assert os.get_blocking(reader)


def test_a_whole_file_keeps_its_line_ends_and_loses_its_byte_order_mark(tokenizer, tmp_path):
    (tmp_path / "a.txt").write_bytes(b"\xef\xbb\xbfa\r\n\r\nb\r\n")
    assert builders.read_documents(tmp_path / "a.txt", tg.ReadOptions())[0] == ("a\r\n\r\nb\r\n",)
    assert tg.count(tokenizer, tmp_path / "a.txt") == tg.count(tokenizer, iter(["a\r\n\r\nb\r\n"]))


@pytest.mark.parametrize(
    ("name", "raw", "match"),
    [
        ("c.jsonl", b'{"text": "a"}\n{"text": null}\n', "line 2: invalid type: null"),
        ("c.jsonl", b'{"text": "a"}\n{"text": 5}\n', "line 2: invalid type"),
        ("c.jsonl", b'\n\n{"other": "a"}\n', "line 3: the object has no field `text`"),
        ("c.parquet", parquet(["a", "b", "c", None]), "row 4: the text is null"),
    ],
)
def test_a_bad_document_is_named_by_every_reader(tokenizer, tmp_path, name, raw, match):
    (tmp_path / name).write_bytes(raw)
    readers = (
        lambda path: tg.count(tokenizer, path),
        lambda path: builders.read_documents(path, tg.ReadOptions()),
        lambda path: tg.evaluate({"t": tokenizer}, {"x": path}),
        lambda path: tg.compare(tokenizer, tokenizer, path),
        lambda path: tg.measure.curve(tokenizer, tg.count(tokenizer, iter(["a"])), path, [1]),
    )
    for read in readers:
        with pytest.raises(errors.CorpusError, match=rf"{name}`, {match}"):
            read(tmp_path / name)


@pytest.mark.skipif(sys.platform != "linux", reason="names are UTF-8 there")
def test_the_name_of_a_parquet_file_need_not_be_utf_8(tokenizer, tmp_path):
    path = tmp_path / os.fsdecode(b"\xff.parquet")
    path.write_bytes(parquet(["a", "b"]))
    assert tg.count(tokenizer, path).totals.documents == 2


def test_a_parquet_file_without_rows_is_an_empty_corpus(tokenizer, tmp_path):
    pq.ParquetWriter(tmp_path / "c.parquet", pa.schema([("text", pa.string())])).close()
    assert tg.count(tokenizer, tmp_path / "c.parquet").totals == tg.corpus.options.Totals()


def test_a_bad_document_beyond_the_limit_is_not_read(tokenizer, tmp_path):
    (tmp_path / "c.parquet").write_bytes(parquet(["a", None]))
    assert (
        tg.count(tokenizer, tmp_path / "c.parquet", count_options=tg.CountOptions(max_documents=1)).totals.documents
        == 1
    )


def test_items_of_an_iterable_that_are_no_strings_are_skipped_and_counted(tokenizer):
    texts, totals = builders.read_documents(iter(["a", None, 5, "b"]), SKIPPING)
    assert (texts, totals.skipped) == (("a", "b"), 2)
    assert tg.count(tokenizer, iter(["a", None, 5, "b"]), read_options=SKIPPING).totals.skipped == 2


@pytest.mark.parametrize("bad", ["missing.txt", "b.txt.bz2", "b.txt.gz", "b.parquet"])
def test_files_after_an_unreadable_one_are_read(tokenizer, tmp_path, bad):
    for name in ("a.txt", "c.txt"):
        (tmp_path / name).write_text(name[0])
    if bad != "missing.txt":
        (tmp_path / bad).write_bytes(b"\x1f\x8bnoise")
    paths = [tmp_path / "a.txt", tmp_path / bad, tmp_path / "c.txt"]
    texts, totals = builders.read_documents(paths, SKIPPING)
    assert (texts, totals.skipped) == (("a", "c"), 1)
    assert tg.count(tokenizer, paths, read_options=SKIPPING).totals == totals + tg.corpus.options.Totals(pretokens=2)
    for read in (
        builders.read_documents,
        lambda paths, read_options: tg.count(tokenizer, paths, read_options=read_options),
    ):
        with pytest.raises(errors.CorpusError, match=bad):
            read(paths, tg.ReadOptions())


def test_an_error_of_one_file_while_another_is_read_is_charged_to_the_first(tokenizer, tmp_path, monkeypatch):
    for name in "abc":
        (tmp_path / f"{name}.txt").write_text(f"{name} " * 20)
    real = counting._count_block

    def failing(counter, block, limits, **options):
        if block.name.endswith("a.txt"):
            raise block.placed(errors.CorpusError("it cannot be counted", hint="none"))
        return real(counter, block, limits, **options)

    monkeypatch.setattr(counting, "_count_block", failing)
    with pytest.raises(errors.CorpusError, match=r"a\.txt`, it cannot"):
        tg.count(tokenizer, tmp_path)
    found = tg.count(tokenizer, tmp_path, read_options=tg.ReadOptions(skip_bad=True))
    monkeypatch.undo()
    expected = tg.count(tokenizer, [tmp_path / "b.txt", tmp_path / "c.txt"])
    assert found.table == expected.table
    assert found.totals.skipped > 0


def test_counts_are_known_by_their_content_and_not_by_their_name(tokenizer, tmp_path):
    counts = tg.count(tokenizer, iter(["kass koer"]))
    counts.save(tmp_path / "counts.bin")
    (tmp_path / "text.parquet").write_bytes(parquet(["kass koer"]))
    (tmp_path / "text.txt").write_text("kass koer")
    names = ("counts.bin", "text.parquet", "text.txt", "nowhere")
    assert [is_counts_file(tmp_path / name) for name in names] == [True, False, False, False]
    found = tg.evaluate({"t": tokenizer}, {name: tmp_path / name for name in names[:3]})
    assert len({score.tokens for score in found.scores}) == 1
    with pytest.raises(errors.CorpusError, match="which has no documents"):
        tg.compare(tokenizer, tokenizer, tmp_path / "counts.bin")
    rates = [tg.measure.curve(tokenizer, counts, tmp_path / name, [1]).points[0].bytes_per_token for name in names[:3]]
    assert len({*rates}) == 1


def test_options_that_nothing_is_read_by_are_refused(tokenizer, folder, tmp_path, tokengraft):
    counts = str(tg.count(tokenizer, iter(["kass"])).save(tmp_path / "c.parquet"))
    with pytest.raises(errors.OptionError, match="all texts are counts"):
        tg.evaluate({"t": tokenizer}, {"x": counts}, read_options=SKIPPING)
    with pytest.raises(errors.OptionError, match="for counting"):
        tg.evaluate({"t": tokenizer}, {"x": iter(["a"])}, read_options=tg.ReadOptions(normalize="nfkc"))
    shown = tokengraft("evaluate", folder, "--text", counts, "--skip-bad", code=2).err
    assert "options for reading text were given" in shown
    curve = ["extend", folder, "--counts", counts, "--held-out", counts, "--add", 1, "--curve", "--text-field", "x"]
    assert "--text-field is for reading text, and all texts are counts" in tokengraft(*curve, code=2).err


def test_text_is_read_by_the_reading_options_of_each_command(folder, tmp_path, capsys):
    path = tmp_path / "c.data"
    path.write_text('{"body": "kass koer"}\nbad\n{"body": "kass"}\n')
    read_options = ["--format", "jsonl", "--text-field", "body", "--skip-bad", "--json"]
    assert cli.main(["evaluate", str(folder), "--text", f"x={path}", *read_options]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [(score["documents"], score["bytes"]) for score in found["scores"]] == [(2, 13)]
    assert "1 documents or files" in found["warnings"][0]
    two = [f"a={folder}", f"b={folder}"]
    assert cli.main(["evaluate", *two, "--text", f"x={path}", "--examples", *read_options]) == 0
    assert json.loads(capsys.readouterr().out)["examples"]["x"]["documents"] == 2
    tg.count(tg.load(folder), iter(["kass"] * 9)).save(tmp_path / "counts.parquet")
    path = path.rename(tmp_path / "c.jsonl")  # `extend` has no --format
    for learn in (["--corpus", str(path)], ["--counts", str(tmp_path / "counts.parquet")]):
        curve = ["extend", str(folder), *learn, "--held-out", str(path), "--add", "1", "--curve"]
        assert cli.main([*curve, *read_options[2:]]) == 0
        assert json.loads(capsys.readouterr().out)["points"][0]["bytes_per_token"] > 0


def test_text_files_have_one_document_per_line_unless_asked_otherwise(folder, tmp_path, tokengraft):
    path = tmp_path / "a.txt"
    path.write_bytes(b"kass\r\nkoer\r\n")
    for options, expected in (([], (2, 8)), (["--documents", "files"], (1, 12))):
        score = tokengraft("evaluate", folder, "--text", path, "--json", *options).json["scores"][0]
        assert (score["documents"], score["bytes"]) == expected
