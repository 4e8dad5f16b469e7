"""`--no-skips`: an unexpected skip fails the run, also with several processes."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import skips

HOOKS = [name for name in dir(skips) if name.startswith("pytest_")]
ALLOWED = {
    "allowed": "import pytest\ndef test_a(): pytest.skip('set TOKENGRAFT_LLAMA_CPP')",
    "failing": "import pytest\n@pytest.mark.xfail\ndef test_a(): assert False",
}
UNEXPECTED = {
    "unexpected": "import pytest\ndef test_a(): pytest.skip('no such thing here')",
    "module": "import pytest\npytest.importorskip('no_such_module')\ndef test_a(): pass",
}


def run(folder, tests, *options):
    """Runs files with tests by pytest."""
    (folder / "conftest.py").write_text(f"from skips import {', '.join(HOOKS)}\n")
    for name, source in ({"passes": "def test_a(): pass"} | tests).items():
        (folder / f"test_{name}.py").write_text(source)
    environment = os.environ | {"PYTHONPATH": str(Path(skips.__file__).parent), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    command = f"{sys.executable} -m pytest -q -p xdist -p no:cacheprovider -c /dev/null --rootdir .".split()
    return subprocess.run([*command, *options], cwd=folder, env=environment, capture_output=True, text=True)


@pytest.mark.parametrize("processes", ["0", "2"])
def test_an_unexpected_skip_fails_the_run(tmp_path, processes):
    done = run(tmp_path, UNEXPECTED, "--no-skips", "--numprocesses", processes)
    assert done.returncode == 1, done.stdout + done.stderr
    assert done.stdout.count("SKIPPED UNEXPECTEDLY") == len(UNEXPECTED)


@pytest.mark.parametrize(("tests", "options"), [(ALLOWED, ["--no-skips", "--numprocesses", "2"]), (UNEXPECTED, [])])
def test_skips_that_are_allowed_and_skips_without_the_option_are_no_failures(tmp_path, tests, options):
    done = run(tmp_path, tests, *options)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "SKIPPED UNEXPECTEDLY" not in done.stdout


def test_fast_runs_as_if_torch_were_not_installed_and_leaves_out_heavy_fixtures(tmp_path):
    torch = "import pytest\ndef test_a(): pytest.importorskip('torch')"
    spark = "import pytest\n@pytest.fixture\ndef spark(): assert 0\ndef test_a(spark): pass"
    done = run(tmp_path, {"torch": torch, "spark": spark}, "--fast", "-rs")
    assert "1 passed, 1 skipped, 1 deselected" in done.stdout
    assert done.returncode == 0
