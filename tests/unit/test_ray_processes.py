"""Counting on Ray in processes of its own: a machine that is lost, an interruption, and the memory of the driver."""

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import builders
import pytest

import tokengraft as tg

pytest.importorskip("ray")
ENVIRONMENT = os.environ | {"RAY_USAGE_STATS_ENABLED": "0"}
needs_proc = pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="processes are seen in /proc")
LINES = tg.ReadOptions(documents="lines")


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return builders.write(tmp_path_factory.mktemp("tok"), builders.byte_level())


@pytest.fixture
def short_folder():
    """A folder with a short path, as Ray needs for its sockets."""
    with tempfile.TemporaryDirectory(prefix="t", ignore_cleanup_errors=True) as folder:
        yield Path(folder)


def write_lines(path, n, of="word"):
    path.write_text("".join(f"the {of}{number} of cat {number % 977}\n" for number in range(n)))
    return path


def python(code, *arguments, **environment):
    command = [sys.executable, "-c", code, *map(str, arguments)]
    return subprocess.run(command, env=ENVIRONMENT | environment, capture_output=True, text=True, timeout=300)


SOON_LOST = {"RAY_health_check_period_ms": "300", "RAY_health_check_failure_threshold": "2"}
"""Ray notices in a second that a machine is lost, not in twenty."""
LOSE_A_NODE = """
import sys
import ray
from ray.cluster_utils import Cluster
import tokengraft as tg
from tokengraft.counts import ray as engine

engine.unit_size = lambda *_: 1 << 20
model, corpus, out = sys.argv[1:]
options = {"num_cpus": 1, "object_store_memory": 100_000_000}
cluster = Cluster(initialize_head=True, head_node_args={**options, "include_dashboard": False})
lost = [cluster.add_node(**options) for _ in range(2)]
ray.init(cluster.address, log_to_driver=False, logging_level="CRITICAL")
calls = []

def progress(*call):
    calls.append(call)
    if len(calls) == 3:
        cluster.remove_node(lost.pop(), allow_graceful=False)

lines = tg.ReadOptions(documents="lines")
counts = tg.count(tg.load(model), corpus, read_options=lines, engine="ray", progress=progress)
counts.save(out)
print("units, machines:", len(calls), len([node for node in ray.nodes() if node["Alive"]]))
ray.shutdown()
cluster.shutdown()
"""


def test_a_machine_that_is_lost_loses_and_doubles_nothing(model, tmp_path, short_folder):
    corpus = tmp_path / "corpus"
    corpus.mkdir()
    for number in range(9):
        write_lines(corpus / f"{number}.txt", 40_000, f"word{number}")
    places = {"RAY_TMPDIR": str(short_folder), "TMPDIR": str(short_folder)}
    done = python(LOSE_A_NODE, model, corpus, tmp_path / "counts.parquet", **places, **SOON_LOST)
    assert done.returncode == 0, done.stderr
    n_units, alive = map(int, re.search(r"units, machines: (\d+) (\d+)", done.stdout).groups())
    assert n_units > 6
    assert alive == 2
    expected = tg.count(tg.load(model), corpus, read_options=LINES).save(tmp_path / "expected.parquet")
    assert (tmp_path / "counts.parquet").read_bytes() == expected.read_bytes()


def processes_in(folder):
    """The processes whose arguments name a folder."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            found += [path.parent.name] if os.fsencode(folder) in path.read_bytes() else []
        except OSError:
            continue
    return found


def wait_for(condition, seconds=60):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.05)


@needs_proc
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_command_leaves_nothing(model, tmp_path, short_folder, number):
    corpus = write_lines(tmp_path / "c.txt", 1_500_000)
    out = tmp_path / "out" / "counts.parquet"
    command = [sys.executable, "-m", "tokengraft", "count", model, corpus, "--documents", "lines", "--engine", "ray"]
    environment = ENVIRONMENT | {"TMPDIR": str(short_folder)}
    run = subprocess.Popen([*command, "--out", out], env=environment, stderr=subprocess.PIPE, text=True)
    try:
        wait_for(lambda: list(short_folder.glob("tg-*/.tokengraft-*")) or run.poll() is not None)  # a task counts
        run.send_signal(number)
        _, messages = run.communicate(timeout=60)
    finally:
        run.kill()
    assert run.returncode == 128 + number, messages
    assert "Traceback" not in messages
    wait_for(lambda: not processes_in(short_folder))
    assert not out.parent.exists() or not list(out.parent.iterdir())
    wait_for(lambda: not list(short_folder.iterdir()))


def test_an_address_without_ray_is_refused_at_once(model, tmp_path):
    code = (
        "import sys, tokengraft as tg; tg.count(tg.load(sys.argv[1]), sys.argv[2], engine='ray', address=sys.argv[3])"
    )
    corpus = write_lines(tmp_path / "c.txt", 10)
    for address, message in (("127.0.0.1:1", "cannot connect to Ray at 127.0.0.1:1"), ("ray://a:1", "Ray Client")):
        done = python(code, model, corpus, address)
        assert "OptionError" in done.stderr
        assert message in done.stderr


LETTERS = str.maketrans("01", "ab")
MEMORY = """
import json, re, sys
from pathlib import Path
import ray
import tokengraft as tg
from tokengraft.counts.count import counted

model, *corpora = sys.argv[1:]
ray.init("local", num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="CRITICAL")
options = tg.CountOptions(engine="ray", memory=32 << 20)
for corpus in corpora:
    with counted(tg.load(model), corpus, tg.ReadOptions(documents="lines"), options, None) as (counts, counter):
        # Not ru_maxrss, which begins with the memory of the process that started this one.
        peak = int(re.search(r"VmHWM:\\s*(\\d+) kB", Path("/proc/self/status").read_text())[1])
        print(json.dumps([counts.totals.documents, 1024 * peak]))
"""


@needs_proc
def test_the_memory_of_the_driver_does_not_grow_with_the_corpus(model, tmp_path):
    """Five times as many distinct pretokens take less more memory than their bytes alone.

    The writing of the result is that of the local engine, and has tests of its own.
    """
    sizes = (300_000, 1_500_000)
    corpora = [tmp_path / f"{n}.txt" for n in sizes]
    for n, corpus in zip(sizes, corpora, strict=True):
        corpus.write_text("".join(f" {number:024b}\n".translate(LETTERS) for number in range(n)))
    done = python(MEMORY, model, *corpora)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    documents, peaks = zip(*map(json.loads, done.stdout.splitlines()), strict=True)
    assert documents == sizes
    assert peaks[1] - peaks[0] < 24 * (sizes[1] - sizes[0]), peaks
