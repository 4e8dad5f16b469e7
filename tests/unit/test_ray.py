"""Counting on Ray: the result of the local engine, whatever fails on the way."""

import gzip
import json
import os
import signal
import sys
from dataclasses import replace
from functools import partial
from importlib import import_module
from pathlib import Path

import builders
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tokengraft as tg
from tokengraft import errors
from tokengraft.cli import main
from tokengraft.corpus.open import open_corpus
from tokengraft.counts import units
from tokengraft.counts.count import HoldOut, count_to_file, count_with_hold_out
from tokengraft.counts.threads import CountJob

pytest.importorskip("ray")
LINES = tg.ReadOptions(documents="lines")


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    """Files of every format. Some documents are in several of them."""
    folder = tmp_path_factory.mktemp("corpus")
    lines = [f"{text} <|end|> {number % 40}" for number, text in enumerate(builders.TEXT * 10)]
    (folder / "a.txt").write_text("\n".join(lines), encoding="utf-8")
    (folder / "b.jsonl").write_text("\n".join(json.dumps({"text": line}) for line in lines[::2]), encoding="utf-8")
    pq.write_table(pa.table({"text": lines[::3]}), folder / "c.parquet", row_group_size=50)
    (folder / "d.txt.gz").write_bytes(gzip.compress("\n".join(lines[::5]).encode()))
    (folder / "e.jsonl.zst").write_bytes(pa.compress((folder / "b.jsonl").read_bytes(), "zstd", asbytes=True))
    (folder / "f.txt").write_bytes(b"caf\xe9 \xff cat\n")
    return folder


@pytest.fixture
def many_units(monkeypatch):
    """A unit for every input, so that a small corpus is counted by several tasks."""
    monkeypatch.setattr(units, "unit_size", lambda *_: 1)
    monkeypatch.setattr("tokengraft.counts.ray.unit_size", lambda *_: 1)


def same_file(tokenizer, corpus, tmp_path, read_options=LINES, **options):
    """Whether both engines write the same bytes."""
    written = []
    for engine in ("local", "ray"):
        out = tmp_path / f"{engine}.parquet"
        count_options = tg.CountOptions(engine=engine, **options)
        count_to_file(CountJob.of(tokenizer, read_options, count_options), corpus, out)
        written.append(out.read_bytes())
        out.unlink()
    return written[0] == written[1]


@pytest.mark.usefixtures("ray_started", "many_units")
@pytest.mark.parametrize(
    "options",
    [{}, {"min_count": 30}, {"workers": 1, "memory": 1 << 20}],
    ids=lambda options: " ".join(options) or "default",
)
def test_the_file_is_that_of_the_local_engine(tokenizer, corpus, tmp_path, options):
    assert same_file(tokenizer, corpus, tmp_path, **options)


@pytest.mark.usefixtures("ray_started", "many_units")
@pytest.mark.parametrize("name", ["sentencepiece", "specials-first-with-holes"])
def test_every_type_of_tokenizer_is_counted_as_locally(corpus, tmp_path, name):
    tokenizer = tg.load(builders.write(tmp_path / "tok", builders.TINY[name]()))
    assert same_file(tokenizer, corpus, tmp_path, tg.ReadOptions(normalize="nfkc", documents="files"))


@pytest.mark.usefixtures("ray_started", "many_units")
@pytest.mark.parametrize("shard", [(0, 3), (2, 3)])
def test_shards_lists_globs_and_weights_are_those_of_the_local_engine(tokenizer, corpus, shard, monkeypatch):
    monkeypatch.chdir(corpus)
    items = ["*.txt", Path("c.parquet"), str(corpus / "b.jsonl")]
    read_options = replace(LINES, shard=shard)
    for weights in (None, [1, "1/3", 2]):
        expected = tg.count(tokenizer, items, weights=weights, read_options=read_options)
        assert tg.count(tokenizer, items, weights=weights, read_options=read_options, engine="ray") == expected


@pytest.mark.usefixtures("ray_started", "many_units")
@pytest.mark.parametrize("hold_out", [HoldOut(1, 500), HoldOut(3, 10**9)])
def test_hold_out_is_that_of_the_local_engine(tokenizer, corpus, hold_out):
    expected, found = (
        count_with_hold_out(
            tokenizer,
            corpus,
            read_options=LINES,
            count_options=tg.CountOptions(engine=engine, min_count=2),
            hold_out=hold_out,
        )
        for engine in ("local", "ray")
    )
    assert expected.held_out
    assert found == expected


@pytest.mark.usefixtures("ray_started")
def test_a_large_file_of_lines_is_read_by_several_tasks(tokenizer, tmp_path, monkeypatch):
    path = tmp_path / "c.txt"
    path.write_text("".join(f"line {number} of the cat\n" for number in range(200_000)))
    monkeypatch.setattr("tokengraft.counts.ray.unit_size", lambda *_: 1 << 20)
    calls = []
    count_options = tg.CountOptions(engine="ray")
    found = tg.count(
        tokenizer, path, read_options=LINES, count_options=count_options, progress=lambda *call: calls.append(call)
    )
    assert found == tg.count(tokenizer, path, read_options=LINES)
    size = path.stat().st_size
    assert len(calls) == -(-size // (1 << 20)) > 4
    assert sum(more for _, more, _ in calls) == size
    assert {(name, total) for name, _, total in calls} == {(str(path), size)}


@pytest.mark.usefixtures("ray_started")
def test_files_behind_a_url_are_opened_by_the_workers(tokenizer, corpus, tmp_path, monkeypatch):
    pytest.importorskip("fsspec")
    (tmp_path / "large.jsonl").write_text("".join(f'{{"text": "line {n} of the cat"}}\n' for n in range(90_000)))
    monkeypatch.setattr("tokengraft.counts.ray.unit_size", lambda *_: 1 << 20)
    urls = [f"file://{corpus}/*.parquet", f"file://{corpus}/d.txt.gz", f"file://{tmp_path}/large.jsonl"]
    assert same_file(tokenizer, urls, tmp_path)
    (tmp_path / "large.jsonl").write_text('{"text": "a"}\n' * 200_000 + "not json\n" + '{"text": "b"}\n' * 100_000)
    with pytest.raises(errors.CorpusError, match=r"`file://.*large.jsonl`, line 200,001"):
        tg.count(tokenizer, urls, engine="ray")


@pytest.mark.usefixtures("ray_started")
@pytest.mark.parametrize("shard", [None, (1, 2)])
def test_nothing_after_a_line_that_is_too_long_is_counted_although_others_read_it(
    tokenizer, tmp_path, monkeypatch, shard
):
    path = tmp_path / "c.txt"
    path.write_bytes(b"cat of the line\n" * 300_000 + b"x" * 6_000_000 + b"\ncat\n" + b"dog\n" * 500_000)
    monkeypatch.setattr("tokengraft.counts.ray.unit_size", lambda *_: 1 << 20)
    monkeypatch.setattr("tokengraft.corpus.open.PART_BYTES", 2 << 20)
    read_options = replace(LINES, skip_bad=True, shard=shard)
    options = {"read_options": read_options, "count_options": tg.CountOptions(memory=1 << 20)}
    assert tg.count(tokenizer, path, engine="ray", **options) == tg.count(tokenizer, path, **options)


@pytest.mark.usefixtures("ray_started")
@pytest.mark.parametrize("shard", [None, (5, 6)])
def test_an_empty_corpus_has_no_counts(tokenizer, tmp_path, shard):
    (tmp_path / "a.txt").write_text("")
    pq.write_table(pa.table({"text": pa.array([], pa.string())}), tmp_path / "b.parquet")
    options = {"read_options": tg.ReadOptions(shard=shard)}
    assert tg.count(tokenizer, tmp_path, engine="ray", **options) == tg.count(tokenizer, tmp_path, **options)


DAMAGED = {
    "bad.parquet": (b"PAR1 damaged PAR1", "bad.parquet"),
    "bad.jsonl": (b'{"text": "a"}\n\nnot json\n', "line 3"),
}


@pytest.mark.usefixtures("ray_started", "many_units")
@pytest.mark.parametrize("name", [*DAMAGED, "null.parquet"])
def test_a_damaged_file_is_named_or_skipped_as_by_the_local_engine(tokenizer, corpus, tmp_path, name):
    if name == "null.parquet":
        pq.write_table(pa.table({"text": ["a", "b", None]}), tmp_path / name, row_group_size=2)
    else:
        (tmp_path / name).write_bytes(DAMAGED[name][0])
    for of_command, option in ((False, "`skip_bad`"), (True, "--skip-bad")):
        messages = []
        for engine in ("local", "ray"):
            with errors.on_command_line(of_command), pytest.raises(errors.CorpusError) as caught:
                tg.count(tokenizer, [corpus, tmp_path / name], read_options=LINES, engine=engine)
            assert caught.type is errors.CorpusError
            messages.append(str(caught.value))
        assert messages[0] == messages[1]
        assert name in messages[1]
        assert DAMAGED.get(name, ("", "row 3"))[1] in messages[1]
        assert option in messages[1]
    read_options = replace(LINES, skip_bad=True)
    expected = tg.count(tokenizer, [corpus, tmp_path / name], read_options=read_options)
    assert expected.totals.skipped == 1
    assert tg.count(tokenizer, [corpus, tmp_path / name], read_options=read_options, engine="ray") == expected


@pytest.mark.usefixtures("ray_started")
@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        (iter(["a"]), {}, "in memory"),
        (["a.txt", 3], {}, "in memory"),
        ("-", {}, "standard input"),
        ("/dev/null", {}, "cannot be read by other processes"),
        (["memory://a.txt"], {}, "cannot be read by other processes"),
        ("a.txt", {"max_bytes": 5}, "`max_bytes` is not possible"),
        ("a.txt", {"max_documents": 5}, "`max_documents` is not possible"),
    ],
)
def test_what_other_machines_cannot_do_is_refused(tokenizer, text, options, message):
    import fsspec

    fsspec.filesystem("memory").pipe("/a.txt", b"cat")
    with pytest.raises(errors.OptionError, match=message):
        tg.count(tokenizer, text, count_options=tg.CountOptions(engine="ray", **options))


def test_options_of_ray_without_ray_are_refused():
    with pytest.raises(errors.OptionError, match="is for Ray"):
        tg.CountOptions(address="auto")
    with pytest.raises(errors.OptionError, match="no engine 'spark'"):
        tg.CountOptions(engine="spark")


def test_the_cluster_that_is_connected_stays_so_and_another_one_is_refused(tokenizer, corpus, ray_started):
    expected = tg.count(tokenizer, corpus, weights=[1])
    assert tg.count(tokenizer, corpus, weights=[1], engine="ray", address="auto") == expected
    for address in ("10.0.0.1:6379", "ray://head:10001"):
        for given in ({"address": address}, {"count_options": tg.CountOptions(engine="ray", address=address)}):
            with pytest.raises(
                errors.OptionError, match=f"connected to Ray already.*{address}|{address}.*connected to"
            ):
                tg.count(tokenizer, corpus, engine="ray", **given)
        with pytest.raises(errors.OptionError, match="connected to Ray already"):
            tg.count(tokenizer, corpus, weights=[2], engine="ray", address=address)
    assert ray_started.is_initialized()


def test_the_name_of_the_working_folder_is_no_pattern(tmp_path, monkeypatch):
    for name in ("[ab]", "a"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "c.txt").write_text("cat")
    (tmp_path / "a" / "other.txt").write_text("cat")
    monkeypatch.chdir(tmp_path / "[ab]")
    for item in ("c.txt", "*.txt", ".", "../[[]ab]/*.txt"):
        (source,) = units.corpus_inputs(item, LINES, "ray")
        assert os.path.samefile(source.name, "c.txt")  # noqa: PTH121
        assert os.path.isabs(source.name)  # noqa: PTH117
    with pytest.raises(errors.CorpusError):
        units.corpus_inputs("other.txt", LINES, "ray")


@pytest.mark.usefixtures("ray_started")
def test_a_worker_with_another_version_is_refused(tokenizer, corpus, monkeypatch):
    class Core:
        __version__ = "0.0.7"

    monkeypatch.setattr("tokengraft.counts.ray._core", Core)
    with pytest.raises(errors.OptionError, match=r"a Ray worker has tokengraft .*, and this program has 0\.0\.7"):
        tg.count(tokenizer, corpus, engine="ray")


def test_ray_that_is_not_installed_is_named(tokenizer, corpus, monkeypatch):
    monkeypatch.setattr(import_module("tokengraft.counts.count"), "find_spec", lambda _: None)
    with pytest.raises(errors.OptionError, match="needs ray") as caught:
        tg.count(tokenizer, corpus, weights=[1], engine="ray")
    assert "pip install 'tokengraft[ray]'" in caught.value.hint


def killing_once(marker, blocks, cut):
    """The blocks of an input. The first process that reads them is killed in the middle."""
    for block in blocks(cut):
        yield block
        if not marker.exists():
            marker.touch()
            os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.usefixtures("ray_started", "many_units")
def test_a_worker_that_is_killed_loses_and_doubles_nothing(tokenizer, corpus, tmp_path):
    from ray import cloudpickle

    from tokengraft.counts.ray import counted_on_ray

    cloudpickle.register_pickle_by_value(sys.modules[__name__])  # workers cannot import tests
    marker = tmp_path / "killed"
    inputs = open_corpus(corpus, LINES)
    inputs[1] = replace(inputs[1], blocks=partial(killing_once, marker, inputs[1].blocks))
    job = CountJob.of(tokenizer, LINES, tg.CountOptions(engine="ray"))
    with counted_on_ray(job, inputs, None) as (summary, counter):
        table = counter.finish().take(2**63 - 1, 1)
    expected = tg.count(tokenizer, corpus, read_options=LINES)
    assert marker.exists()
    assert (summary.totals, table) == (expected.totals, expected.table)


@pytest.mark.usefixtures("ray_started", "many_units")
def test_adapt_on_ray_is_adapt(folder, corpus, tmp_path):
    results = []
    for engine in ("local", "ray"):
        options = tg.AdaptOptions(count_options=tg.CountOptions(engine=engine), hold_out=HoldOut(3), report=False)
        out = tmp_path / engine
        tg.adapt(folder, target=corpus, keep=corpus / "a.txt", swap=8, out=out, options=options)
        results.append({path.name: path.read_bytes() for path in out.iterdir() if path.name.startswith("tokenizer")})
    assert results[0] == results[1]
    assert results[0]


@pytest.mark.usefixtures("ray_started")
def test_adapt_refuses_what_cannot_be_counted_before_it_reads_text(folder, corpus, tmp_path):
    options = tg.AdaptOptions(count_options=tg.CountOptions(engine="ray", max_bytes=10))
    with pytest.raises(errors.OptionError, match="`max_bytes` is not possible"):
        tg.adapt(folder, target=corpus, swap=8, out=tmp_path / "out", options=options)
    given = tg.AdaptOptions(count_options=tg.CountOptions(engine="ray"))
    with pytest.raises(errors.OptionError, match="in memory"):
        tg.adapt(folder, target=iter(["a"]), swap=8, out=tmp_path / "out", options=given)


@pytest.mark.usefixtures("ray_started", "many_units")
def test_the_command_counts_on_ray(folder, corpus, tmp_path, capsys):
    arguments = ["count", str(folder), str(corpus), "--documents", "lines", "--json"]
    for engine in ("local", "ray"):
        assert main([*arguments, "--engine", engine, "--out", str(tmp_path / engine)]) == 0
    local, on_ray = map(json.loads, capsys.readouterr().out.splitlines())
    assert local | {"out": ""} == on_ray | {"out": ""}
    assert (tmp_path / "local").read_bytes() == (tmp_path / "ray").read_bytes()
    assert main([*arguments, "--address", "auto", "--out", str(tmp_path / "no")]) == 2
    assert "--engine ray" in capsys.readouterr().err
