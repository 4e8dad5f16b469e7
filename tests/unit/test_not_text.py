"""Files that are not UTF-8 text: refused by every reader, or read with a warning."""

import bz2
import gzip
import json
import lzma
import random
import types
from dataclasses import replace

import builders
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from small_corpora import Trickle, parquet

import tokengraft as tg
from tokengraft import errors
from tokengraft.corpus.blocks import split_input
from tokengraft.counts.count import reading_warnings

SKIPPING = tg.ReadOptions(documents="lines", skip_bad=True)
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
def test_every_command_warns_of_text_that_is_not_utf8(folder, tmp_path, tokengraft, command):
    arguments = command.format(tok=folder, text=latin_1(tmp_path), out=tmp_path / "out").split()
    assert "not UTF-8" in tokengraft(*arguments).err
    force = ["--force"] if "--out" in arguments else []
    shown = tokengraft(*arguments, "--json", *force)
    assert any("not UTF-8" in warning for warning in json.loads(shown.out)["warnings"])
    assert "warning: " in shown.err
