"""One reader: counting, iterating and measuring agree on every document, and say what they could not read."""

import bz2
import gzip
import io
import json
import lzma
import os
import random
import sys
import types
from collections import Counter
from dataclasses import replace
from importlib import import_module
from threading import Thread

import builders
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tokengraft as tg
from tokengraft import _core, cli, errors
from tokengraft.corpus import blocks
from tokengraft.corpus.blocks import split_input
from tokengraft.corpus.files import LocalFile
from tokengraft.counts.count import reading_warnings
from tokengraft.counts.pretoken_counts import is_counts_file
from tokengraft.measure import segments
from tokengraft.measure.segments import read_text, token_totals

counting = import_module("tokengraft.counts.threads")

SKIPPING = tg.ReadOptions(documents="lines", skip_bad=True)


def parquet(values, kind=None):
    raw = io.BytesIO()
    pq.write_table(pa.table({"text": pa.array(values, kind)}), raw, row_group_size=2)
    return raw.getvalue()


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


class Trickle(io.BytesIO):
    """A pipe whose writer is slow: a read gives what is there, and a signal is seen only between reads."""

    def read1(self, size=-1):
        return super().read1(min(size, 3))

    def read(self, *_):
        raise AssertionError("waits for the whole size, deaf to signals")


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


TEXT = "üks kaks\n"
NOT_UTF8 = {
    "gzip": gzip.compress(TEXT.encode()),
    "zstd": pa.compress(TEXT.encode(), "zstd", asbytes=True),
    "xz": lzma.compress(TEXT.encode()),
    "bzip2": bz2.compress(TEXT.encode(), 3),
    "zip": b"PK\3\4" + TEXT.encode(),
    "Parquet": parquet(["a"]),
    "UTF-16": TEXT.encode("utf-16"),
    "UTF-16, big end first": b"\xfe\xff" + TEXT.encode("utf-16-be"),
    "UTF-32": TEXT.encode("utf-32"),
    "UTF-32, big end first": b"\0\0\xfe\xff" + TEXT.encode("utf-32-be"),
}


@pytest.mark.parametrize("kind", NOT_UTF8)
@pytest.mark.parametrize("name", ["a.txt", "a.jsonl"])
def test_what_is_not_utf8_text_by_its_first_bytes_is_refused_by_every_reader(
    tokenizer, tmp_path, monkeypatch, kind, name
):
    raw = NOT_UTF8[kind] + b"\nkolm" * 300
    path = tmp_path / name
    path.write_bytes(raw)
    said = f"is (a |compressed with )?{kind.partition(',')[0]}"
    lines = tg.ReadOptions(documents="lines")
    monkeypatch.setattr("tokengraft.corpus.open.PART_BYTES", 700)
    monkeypatch.setattr(split_input, "__kwdefaults__", {"block": 100})
    for read_options in (lines, tg.ReadOptions(), *(replace(lines, shard=(number, 2)) for number in range(2))):
        for count_options in (tg.CountOptions(), tg.CountOptions(max_bytes=1500)):
            with pytest.raises(errors.CorpusError, match=said):
                tg.count(tokenizer, path, read_options=read_options, count_options=count_options)
    monkeypatch.setattr("sys.stdin", types.SimpleNamespace(buffer=Trickle(raw)))
    for given in (path, "-"):
        with pytest.raises(errors.CorpusError, match=said):
            builders.read_documents(given, lines)
    assert builders.read_documents([path], replace(lines, skip_bad=True)) == ((), tg.corpus.options.Totals(skipped=1))


@pytest.mark.parametrize("name", ["a.txt", "a.jsonl"])
@pytest.mark.parametrize("end", ["le", "be"])
def test_utf16_without_a_mark_is_refused(tokenizer, tmp_path, name, end):
    (tmp_path / name).write_bytes(TEXT.encode(f"utf-16-{end}") * 99)
    for read_options in (tg.ReadOptions(), tg.ReadOptions(documents="lines")):
        with pytest.raises(errors.CorpusError, match=f"(?s)every second byte is 0.*UTF-16{end.upper()}"):
            tg.count(tokenizer, tmp_path / name, read_options=read_options)


RANDOM = random.Random(7)
BINARY = {
    "weights": (80).to_bytes(8, "little") + b'{"weight":{"dtype":"BF16"}}'.ljust(80) + RANDOM.randbytes(9000),
    "an image": b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + RANDOM.randbytes(5000),
    "zeros": b"the cat sat\n" * 40 + bytes(20),
    "Latin-1": "põhjatäht üle öö\n".encode("latin-1") * 20,
}


@pytest.mark.parametrize("kind", BINARY)
@pytest.mark.parametrize("name", ["a.txt", "a.jsonl", "a.safetensors", "a.txt.gz", "a.parquet"])
def test_binary_data_is_refused_by_every_reader_unless_its_format_is_given(
    tokenizer, folder, tmp_path, monkeypatch, kind, name
):
    raw, path = BINARY[kind], tmp_path / name
    path.write_bytes(gzip.compress(raw) if name.endswith(".gz") else raw)
    if name.endswith(".parquet"):
        pq.write_table(pa.table({"text": pa.array([raw, b"text"], pa.binary())}), path)
    monkeypatch.setattr("tokengraft.corpus.open.PART_BYTES", 100)
    monkeypatch.setattr(split_input, "__kwdefaults__", {"block": 50})
    lines = tg.ReadOptions(documents="lines")
    shards = [replace(lines, shard=(at, 2)) for at in range(2) if not name.endswith((".gz", ".parquet"))]
    for read in (
        *(lambda given=given: tg.count(tokenizer, path, read_options=given) for given in (None, lines, *shards)),
        lambda: tg.count(tokenizer, path, count_options=tg.CountOptions(max_bytes=100)),
        lambda: tg.evaluate({"t": tokenizer}, {"x": path}),
        lambda: tg.adapt(folder, target=path, add=1, out=tmp_path / "out"),
    ):
        with pytest.raises(errors.CorpusError, match="is not text in UTF-8: of its first"):
            read()
    assert builders.read_documents([path], SKIPPING)[1].skipped == 1
    if name not in ("a.parquet", "a.jsonl"):
        given = tg.ReadOptions(format="text")
        assert tg.count(tokenizer, path, read_options=given).totals.documents == 1
        assert builders.read_documents(path, given)[0] == (raw.decode(errors="replace"),)


@pytest.mark.parametrize("kind", BINARY)
def test_columns_of_bytes_in_memory_must_be_text_too(tokenizer, kind):
    column = pa.array([BINARY[kind], b"text"], pa.binary())
    encoded = column.dictionary_encode()
    for texts in (column, encoded, pa.table({"text": column})):
        with pytest.raises(errors.CorpusError, match="is not text in UTF-8: of its first"):
            tg.count(tokenizer, texts)
    with pytest.raises(errors.CorpusError, match="is not text in UTF-8: of its first"):
        tg.distributed.BatchCounter(tokenizer)(pa.table({"text": column}))


@pytest.mark.parametrize("bad", [b"\0", b"\xff", b"\xef\xbf\xbd"])
def test_a_few_bad_bytes_and_any_deep_inside_are_text(tokenizer, tmp_path, monkeypatch, bad):
    text = b"the cat sat on the mat\n" * 100
    few, deep = text + bad * 10 + text, text * 2 + bad * 500
    monkeypatch.setattr("tokengraft.corpus.files.HEAD", 4000)
    monkeypatch.setattr("tokengraft.corpus.blocks.HEAD", 4000)
    for raw in (few, deep, bad, bad * 20, BINARY["zeros"].replace(b"\0", "\ufffd".encode())):
        (tmp_path / "a.txt").write_bytes(raw)
        assert builders.read_documents(tmp_path / "a.txt", tg.ReadOptions())[0] == (raw.decode(errors="replace"),)
        assert tg.count(tokenizer, tmp_path / "a.txt").totals.characters == len(raw.decode(errors="replace"))
        assert tg.count(tokenizer, pa.array([raw])).totals.characters == len(raw.decode(errors="replace"))


def test_the_text_of_a_compressed_file_must_be_utf8_too(tokenizer, tmp_path):
    (tmp_path / "a.txt.gz").write_bytes(gzip.compress(NOT_UTF8["UTF-16"]))
    with pytest.raises(errors.CorpusError, match="is UTF-16"):
        tg.count(tokenizer, tmp_path / "a.txt.gz")


@pytest.mark.parametrize("text", ["PAR1 is the magic of Parquet", "PK", "BZh is bzip2", "(", "\0", "\x1f", "þÿ"])
def test_text_that_begins_almost_as_another_format_is_read(tmp_path, text):
    (tmp_path / "a.txt").write_text(text, encoding="utf-8")
    assert builders.read_documents(tmp_path / "a.txt", tg.ReadOptions())[0] == (text,)


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


def test_options_that_nothing_is_read_by_are_refused(tokenizer, folder, tmp_path, capsys):
    counts = str(tg.count(tokenizer, iter(["kass"])).save(tmp_path / "c.parquet"))
    with pytest.raises(errors.OptionError, match="all texts are counts"):
        tg.evaluate({"t": tokenizer}, {"x": counts}, read_options=SKIPPING)
    with pytest.raises(errors.OptionError, match="for counting"):
        tg.evaluate({"t": tokenizer}, {"x": iter(["a"])}, read_options=tg.ReadOptions(normalize="nfkc"))
    assert cli.main(["evaluate", str(folder), "--text", counts, "--skip-bad"]) == 2
    curve = ["extend", str(folder), "--counts", counts, "--held-out", counts, "--add", "1", "--curve"]
    assert cli.main([*curve, "--text-field", "x"]) == 2
    shown = capsys.readouterr().err
    assert "options for reading text were given" in shown
    assert "--text-field is for reading text, and all texts are counts" in shown


def latin_1(tmp_path):
    path = tmp_path / "latin.txt"
    path.write_bytes("\n".join(["põder õunapuu all", "õhtu", "kass ja koer" * 30] * 9).encode("latin-1"))
    return str(path)


def test_warnings_say_how_many_and_what_to_do():
    assert reading_warnings(tg.corpus.options.Totals(documents=5)) == ()
    replaced, skipped = reading_warnings(tg.corpus.options.Totals(replaced=1234, skipped=5))
    assert "1,234" in replaced
    assert "iconv -f LATIN1 -t UTF-8" in replaced
    assert skipped.startswith("5 documents or files could not be read")


@pytest.mark.parametrize(
    "command",
    [
        "count {tok} {text} --out {out}",
        "extend {tok} --corpus {text} --add 2 --out {out}",
        "extend {tok} --corpus {text} --add 2 --method naive-regen --out {out}",
        "prune {tok} --corpus {text} --remove 2 --out {out}",
        "evaluate {tok} --text {text}",
        "evaluate {tok} {tok}/tokenizer.json --text {text} --examples",
        "extend {tok} --corpus {text} --held-out {text} --add 2 --curve",
    ],
)
def test_every_command_warns_of_text_that_is_not_utf8(folder, tmp_path, capsys, command):
    arguments = command.format(tok=folder, text=latin_1(tmp_path), out=tmp_path / "out").split()
    assert cli.main(arguments) == 0
    assert "not UTF-8" in capsys.readouterr().err
    force = ["--force"] if "--out" in arguments else []
    assert cli.main([*arguments, "--json", *force]) == 0
    shown = capsys.readouterr()
    assert any("not UTF-8" in warning for warning in json.loads(shown.out)["warnings"])
    assert "warning: " in shown.err


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
    for learn in (["--corpus", str(path)], ["--counts", str(tmp_path / "counts.parquet")]):
        curve = ["extend", str(folder), *learn, "--held-out", str(path), "--add", "1", "--curve"]
        assert cli.main([*curve, *read_options]) == 0
        assert json.loads(capsys.readouterr().out)["points"][0]["bytes_per_token"] > 0


def test_text_files_have_one_document_per_line_unless_asked_otherwise(folder, tmp_path, capsys):
    path = tmp_path / "a.txt"
    path.write_bytes(b"kass\r\nkoer\r\n")
    for options, expected in (([], (2, 8)), (["--documents", "files"], (1, 12))):
        assert cli.main(["evaluate", str(folder), "--text", str(path), "--json", *options]) == 0
        score = json.loads(capsys.readouterr().out)["scores"][0]
        assert (score["documents"], score["bytes"]) == expected
