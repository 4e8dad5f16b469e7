"""`--no-skips`: an unexpected skip fails the run, also with several processes."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import skips

HOOKS = [name for name in dir(skips) if name.startswith("pytest_")]
TESTS = {
    "passes": "def test_a(): pass",
    "allowed": "import pytest\ndef test_a(): pytest.skip('set TOKENGRAFT_LLAMA_CPP')",
    "unexpected": "import pytest\ndef test_a(): pytest.skip('no such thing here')",
    "module": "import pytest\npytest.importorskip('no_such_module')\ndef test_a(): pass",
    "expected failure": "import pytest\n@pytest.mark.xfail\ndef test_a(): assert False",
}


def run(folder, source, *options):
    (folder / "conftest.py").write_text(f"from skips import {', '.join(HOOKS)}\n")
    (folder / "test_one.py").write_text(source)
    (folder / "test_two.py").write_text(TESTS["passes"])
    environment = os.environ | {"PYTHONPATH": str(Path(skips.__file__).parent), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "xdist",
        "-p",
        "no:cacheprovider",
        "-c",
        "/dev/null",
        "--rootdir",
        ".",
        *options,
    ]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)


@pytest.mark.parametrize("processes", ["0", "2"])
@pytest.mark.parametrize("case", TESTS)
def test_an_unexpected_skip_fails_the_run(tmp_path, case, processes):
    done = run(tmp_path, TESTS[case], "--no-skips", "--numprocesses", processes)
    failed = case in {"unexpected", "module"}
    assert done.returncode == failed, done.stdout + done.stderr
    assert ("SKIPPED UNEXPECTEDLY" in done.stdout) == failed


def test_without_the_option_a_skip_is_no_failure(tmp_path):
    assert run(tmp_path, TESTS["unexpected"]).returncode == 0


def test_fast_runs_as_if_torch_were_not_installed(tmp_path):
    done = run(tmp_path, "import pytest\ndef test_a(): pytest.importorskip('torch')", "--fast", "-rs")
    assert "1 skipped" in done.stdout
    done = run(tmp_path, "import pytest\n@pytest.fixture\ndef spark(): assert 0\ndef test_a(spark): pass", "--fast")
    assert "1 deselected" in done.stdout
    assert done.returncode == 0
