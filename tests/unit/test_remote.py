"""Corpora behind URLs: the same results as local files, errors with the URL, no credentials in messages."""

import gzip
import http.server
import json
import re
import subprocess
import sys
import threading

import builders
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from test_count import TEXTS

import tokengraft as tg
from tokengraft import cli, errors
from tokengraft.corpus import blocks
from tokengraft.corpus import files as remote
from tokengraft.corpus.blocks import split_input
from tokengraft.corpus.open import open_corpus
from tokengraft.counts.units import corpus_inputs
from tokengraft.pipeline.adapt import cache_key
from tokengraft.pipeline.options import AdaptOptions

fsspec = pytest.importorskip("fsspec")

LINES = tg.ReadOptions(documents="lines")
MORE = TEXTS * 30


@pytest.fixture
def corpus(tmp_path):
    """A folder with a file of every format."""
    folder = tmp_path / "corpus"
    (folder / "sub").mkdir(parents=True)
    text = "\ufeff" + "\n".join(text.replace("\n", " ") for text in MORE)
    rows = "".join(json.dumps({"text": text}) + "\n" for text in MORE).encode()
    (folder / "a.txt").write_text(text, encoding="utf-8")
    (folder / "b.jsonl").write_bytes(rows)
    (folder / "c.jsonl.gz").write_bytes(gzip.compress(rows))
    with pa.CompressedOutputStream(str(folder / "d.jsonl.zst"), "zstd") as stream:
        stream.write(rows)
    pq.write_table(pa.table({"n": range(len(MORE)), "text": MORE}), folder / "sub" / "e.parquet", row_group_size=40)
    (folder / "ignored.bin").write_bytes(b"\0")
    (folder / ".git").mkdir()
    (folder / ".hidden.jsonl").write_text('{"text": "hidden"}')
    pq.write_table(pa.table({"text": ["hidden"]}), folder / ".git" / "h.parquet")
    return folder


@pytest.fixture
def memory(corpus):
    """The same folder as memory://corpus."""
    filesystem = fsspec.filesystem("memory")
    filesystem.put(str(corpus), "/corpus", recursive=True)
    yield "memory://corpus"
    filesystem.rm("/corpus", recursive=True)


class Handler(http.server.SimpleHTTPRequestHandler):
    """Files, with byte ranges unless the server has none. Those called `broken` end in the middle."""

    def log_message(self, *_):
        pass

    def do_HEAD(self):
        self.answer(with_body=False)

    def do_GET(self):
        self.answer(with_body=True)

    def answer(self, *, with_body):
        path = self.translate_path(self.path)
        try:
            with open(path, "rb") as file:  # noqa: PTH123
                data = file.read()
        except OSError:
            self.send_error(404)
            return
        whole, span = data, self.headers.get("Range")
        if span and self.server.ranges:
            first, _, last = span.removeprefix("bytes=").partition("-")
            data = data[int(first) : int(last) + 1] if last else data[int(first) :]
            self.send_response(206)
            self.send_header("Content-Range", f"bytes {first}-{int(first) + len(data) - 1}/{len(whole)}")
        else:
            self.send_response(200)
        self.send_header("Content-Length", str(len(data)))
        if self.server.etag:
            self.send_header("ETag", self.server.etag)
        self.end_headers()
        if with_body:
            self.wfile.write(data[: len(data) // 2] if "broken" in path else data)
            self.close_connection = True


@pytest.fixture
def server(corpus, monkeypatch):
    monkeypatch.setattr(Handler, "protocol_version", "HTTP/1.1")
    httpd = http.server.ThreadingHTTPServer(
        ("127.0.0.1", 0), lambda *args, **options: Handler(*args, directory=str(corpus), **options)
    )
    httpd.ranges, httpd.etag = True, None
    thread = threading.Thread(target=httpd.serve_forever, daemon=True)
    thread.start()
    httpd.url = f"http://127.0.0.1:{httpd.server_port}"
    yield httpd
    httpd.shutdown()
    thread.join()
    httpd.server_close()


FILES = ["a.txt", "b.jsonl", "c.jsonl.gz", "d.jsonl.zst", "sub/e.parquet"]


@pytest.mark.parametrize("name", [*FILES, "", "*.jsonl*", "**/*.parquet"])
@pytest.mark.parametrize(("scheme", "block"), [("memory", 100), ("memory", 1 << 20), ("file", 100)])
def test_urls_give_the_counts_of_local_files(tokenizer, corpus, memory, monkeypatch, scheme, name, block):
    monkeypatch.setattr(blocks, "BLOCK", block)
    url = f"{memory}/{name}" if scheme == "memory" else f"file://{corpus}/{name}"
    local = tg.count(tokenizer, f"{corpus}/{name}", read_options=LINES)
    assert tg.count(tokenizer, url, read_options=LINES) == local
    assert builders.read_documents(url, LINES) == builders.read_documents(f"{corpus}/{name}", LINES)
    assert local.totals.documents


@pytest.mark.parametrize("name", FILES)
def test_a_web_server_gives_the_counts_of_local_files(tokenizer, corpus, server, name):
    expected = tg.count(tokenizer, corpus / name, read_options=LINES)
    assert tg.count(tokenizer, f"{server.url}/{name}?signature=secret", read_options=LINES) == expected
    if not name.endswith("parquet"):  # which is read in parts
        server.ranges = False
        assert tg.count(tokenizer, f"{server.url}/{name}", read_options=LINES) == expected


def test_the_command_line_writes_the_same_file(tmp_path, corpus, memory, tokengraft):
    folder = builders.write(tmp_path / "tok", builders.byte_level())
    for name, source in (("local", str(corpus)), ("remote", memory)):
        out = tmp_path / f"{name}.parquet"
        tokengraft("count", folder, source, "--documents", "lines", "--out", out, "--quiet")
    assert (tmp_path / "local.parquet").read_bytes() == (tmp_path / "remote.parquet").read_bytes()
    tokengraft("evaluate", folder, "--text", f"et={memory}/a.txt")


@pytest.mark.parametrize("scheme", ["memory", "http"])
def test_shards_share_a_remote_file(tokenizer, corpus, memory, server, monkeypatch, scheme):
    monkeypatch.setattr("tokengraft.corpus.open.PART_BYTES", 700)
    monkeypatch.setattr(split_input, "__kwdefaults__", {"block": 100})
    base = memory if scheme == "memory" else server.url
    for name in ("a.txt", "b.jsonl", "sub/e.parquet"):
        parts = [
            tg.count(tokenizer, f"{base}/{name}", read_options=tg.ReadOptions(documents="lines", shard=(number, 3)))
            for number in range(3)
        ]
        assert all(part.totals.documents for part in parts)
        assert parts[0] + parts[1] + parts[2] == tg.count(tokenizer, corpus / name, read_options=LINES)


def test_a_server_without_ranges_is_an_error_for_shards_and_not_a_wrong_result(tokenizer, server, monkeypatch):
    monkeypatch.setattr("tokengraft.corpus.open.PART_BYTES", 700)
    monkeypatch.setattr(split_input, "__kwdefaults__", {"block": 100})
    server.ranges = False
    for name in ("a.txt", "sub/e.parquet"):
        with pytest.raises(errors.CorpusError, match="cannot read `http"):
            tg.count(tokenizer, f"{server.url}/{name}", read_options=tg.ReadOptions(documents="lines", shard=(1, 2)))


@pytest.mark.parametrize("name", FILES)
def test_a_connection_that_drops_is_an_error_and_never_the_end(tokenizer, corpus, server, name):
    path = corpus / name
    broken = f"broken.{name.partition('.')[2]}"
    (corpus / broken).write_bytes(path.read_bytes())
    with pytest.raises(errors.CorpusError, match=rf"cannot read `{server.url}/{broken}`"):
        tg.count(tokenizer, f"{server.url}/{broken}?token=secret", read_options=LINES)
    skipping = tg.ReadOptions(documents="lines", skip_bad=True)
    assert tg.count(tokenizer, f"{server.url}/{broken}", read_options=skipping).totals.skipped >= 1


def test_a_stream_that_ends_early_without_an_error_is_one(tokenizer, memory, monkeypatch):
    """Whatever a file system does: the bytes must be as many as the listing said."""
    opened = remote.remote_files(f"{memory}/a.txt", has_format=bool)[0]
    fsspec.filesystem("memory").pipe("/corpus/a.txt", b"short")
    monkeypatch.setattr("tokengraft.corpus.open.remote_files", lambda *_, **__: [opened])
    with pytest.raises(errors.CorpusError, match=r"it ended after 5 of [\d,]+ bytes"):
        tg.count(tokenizer, f"{memory}/a.txt", read_options=LINES)


@pytest.mark.parametrize(
    ("url", "match"),
    [
        ("memory://nowhere/a.txt", "`memory://nowhere/a.txt`: there is no such file"),
        ("memory://corpus/*.nothing", "pattern matches no file"),
        ("memory://corpus/empty", "there is no such file|folder has no"),
        ("nosuchscheme://a/b.txt", "nosuchscheme"),
        ("http://127.0.0.1:1/a.txt", "cannot read `http://127.0.0.1:1/a.txt`"),
        ("http://me:secret@127.0.0.1:1/a.txt?key=secret", "cannot read `http://127.0.0.1:1/a.txt`"),
    ],
)
def test_what_is_not_there_is_an_error_with_the_url(tokenizer, memory, url, match):  # noqa: ARG001
    with pytest.raises(errors.CorpusError, match=match) as caught:
        tg.count(tokenizer, url)
    assert "secret" not in str(caught.value)
    if "nothing" not in url:
        assert caught.value.__suppress_context__
        options = tg.ReadOptions(skip_bad=True)
        assert tg.count(tokenizer, url, read_options=options).totals.skipped == 1


class StrangeError(Exception):
    """As those of botocore, which are of no common type."""


def test_any_exception_of_a_remote_system_is_an_error_with_the_url(tokenizer, memory, monkeypatch):
    def fail(*_, **__):
        raise StrangeError("denied for https://me:secret@host/x?X-Amz-Signature=secret\nand more")

    memory_system = type(fsspec.filesystem("memory"))
    for method in ("info", "_open"):
        with monkeypatch.context() as patch:
            patch.setattr(memory_system, method, fail)
            with pytest.raises(
                errors.CorpusError, match=r"memory://.*StrangeError: denied for https://host/x"
            ) as found:
                tg.count(tokenizer, f"{memory}/a.txt")
            assert "secret" not in str(found.value)


def test_a_missing_package_is_named(tokenizer, monkeypatch):
    for module, url, match in (("fsspec.core", "s3://a/b.txt", "fsspec"), ("gcsfs", "gs://a/b.txt", "gcsfs")):
        with monkeypatch.context() as patch:
            patch.setitem(sys.modules, module, None)
            with pytest.raises(errors.OptionError, match=match):
                tg.count(tokenizer, url)


def test_a_url_as_a_path_is_an_error_that_says_so(tokenizer):
    from pathlib import Path

    with pytest.raises(errors.CorpusError, match="pass a URL as a string"):
        corpus_inputs(Path("s3://bucket/a.txt"), LINES, "ray")
    with pytest.raises(errors.CorpusError, match="pass a URL as a string"):
        tg.count(tokenizer, Path("s3://bucket/a.txt"))


def test_counts_of_remote_files_are_cached_by_their_version(tokenizer, memory, server):
    def key(url):
        return cache_key(tokenizer, url, AdaptOptions())

    first = key(f"{memory}/a.txt")
    assert first
    assert first == key(f"{memory}/a.txt")
    fsspec.filesystem("memory").pipe("/corpus/a.txt", b"changed")
    assert key(f"{memory}/a.txt") not in (None, first)
    assert key(f"{server.url}/a.txt") is None  # nothing says whether it has changed
    server.etag = '"1"'
    fsspec.filesystem("http").dircache.clear()
    tagged = key(f"{server.url}/a.txt")
    assert tagged
    server.etag = '"2"'
    assert key(f"{server.url}/a.txt") not in (None, tagged)


def test_a_large_remote_file_is_never_in_memory_as_a_whole(monkeypatch, memory):
    """Reads are as large as a block, or a row group's column."""
    sizes = []
    original = remote.Complete.read
    monkeypatch.setattr(blocks, "BLOCK", 64)
    monkeypatch.setattr(remote.Complete, "read", lambda self, size=-1: sizes.append(size) or original(self, size))
    assert builders.read_documents(f"{memory}/a.txt", LINES)[0]
    assert set(sizes) <= set(range(1, 65))
    inputs = open_corpus(f"{memory}/sub/e.parquet", LINES)
    assert len(inputs) == 4


def test_fsspec_is_imported_only_for_urls(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("kass")
    code = (
        "import sys; from tokengraft.corpus.options import ReadOptions; "
        "from tokengraft.corpus.open import input_documents, open_corpus; given = ReadOptions(); "
        f"[*input_documents(open_corpus({str(path)!r}, given), given)]; print('fsspec' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False"]


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("https://u:p@h/a?b=c", "https://h/a"),
        ("https://h/a?secret", "https://h/a"),
        ("sftp://u:a@p@h/a", "sftp://h/a"),
        ("s3://bucket/a?.txt", "s3://bucket/a?.txt"),
        ("hf://datasets/u/d@main/a.txt", "hf://datasets/u/d@main/a.txt"),
        ("simplecache::s3://key:secret@bucket/a", "simplecache::s3://bucket/a"),
        ("data/a.txt", "data/a.txt"),
    ],
)
def test_credentials_are_cut_out_of_urls(url, shown):
    assert remote.without_credentials(url) == shown
    assert "p@" not in remote.without_credentials(f"cannot open '{url}', sorry")


@pytest.mark.parametrize("pattern", ["file://{}/a.txt", "file://{}/*.txt", "file://{}", "simplecache::file://{}/a.txt"])
def test_an_input_that_is_given_by_a_url_is_never_an_output(tmp_path, corpus, capsys, pattern):
    folder = builders.write(tmp_path / "tok", builders.byte_level())
    url, before = pattern.format(corpus), (corpus / "a.txt").read_bytes()
    assert cli.main(["count", str(folder), url, "--out", str(corpus / "a.txt"), "--force"]) != 0
    assert "the input" in capsys.readouterr().err
    out = corpus if "txt" in pattern else corpus / "out"
    assert cli.main(["adapt", str(folder), "--target", url, "--swap", "1", "--force", "--out", str(out)]) != 0
    assert re.search("the input|would delete", capsys.readouterr().err)
    assert (corpus / "a.txt").read_bytes() == before


def test_a_url_as_the_output_is_refused(tmp_path, corpus, capsys, monkeypatch):
    folder = builders.write(tmp_path / "tok", builders.byte_level())
    monkeypatch.chdir(tmp_path)
    before = sorted(tmp_path.iterdir())
    assert cli.main(["count", str(folder), str(corpus), "--out", "s3://bucket/counts.parquet"]) != 0
    assert "is a URL" in capsys.readouterr().err
    with pytest.raises(errors.OutputError, match="is a URL"):
        tg.count(tg.load(folder), corpus).save("memory://counts.parquet")
    assert sorted(tmp_path.iterdir()) == before
