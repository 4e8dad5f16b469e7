"""Which tests may be skipped: `--fast` leaves out what takes long to start, `--no-skips` makes other skips a failure.

Hooks of pytest, which `conftest.py` imports. `allowed_skips.txt` lists the reasons for which a test may be skipped in
spite of `--no-skips`. With xdist, reports of all processes reach the first one, which decides.
"""

import fnmatch
import sys
from pathlib import Path

import pytest

HEAVY = {"ray_started", "spark", "browser", "shared_data", "llama3_folder"}
"""Fixtures that take long to start or to load."""
NOT_WHILE_EDITING = {
    "compatibility",
    "differential",
    "docs",
    "experiments",
    "faults",
    "fuzz",
    "limits",
    "packaging",
    "slow",
}
"""Folders of tests that `--fast` leaves out."""
_LIST = Path(__file__).parent / "allowed_skips.txt"


def allowed_reasons():
    """The patterns of `allowed_skips.txt`: lines that are no comments."""
    lines = map(str.strip, _LIST.read_text(encoding="utf-8").splitlines())
    return [line for line in lines if line and not line.startswith("#")]


def pytest_addoption(parser):
    parser.addoption(
        "--fast",
        action="store_true",
        help="leave out tests that take long: torch, Ray, Spark, browser, data, faults, fuzzing",
    )
    parser.addoption("--no-skips", action="store_true", help="fail if a test is skipped that the list does not allow")


def pytest_configure(config):
    config.stash[_SKIPPED] = set()
    if config.getoption("--fast"):
        sys.modules["torch"] = None  # as if it were not installed


def pytest_collection_modifyitems(config, items):
    if not config.getoption("--fast"):
        return
    left_out = [item for item in items if _takes_long(item)]
    config.hook.pytest_deselected(items=left_out)
    items[:] = [item for item in items if item not in {*left_out}]


def _takes_long(item):
    folder = item.path.parent.name
    needs_torch = "datasets" in item.name  # the library datasets imports torch if it is installed
    heavy = HEAVY & {*getattr(item, "fixturenames", ())} or "ray" in item.path.stem
    return heavy or needs_torch or folder in NOT_WHILE_EDITING


_SKIPPED = pytest.StashKey()


def _note(config, report):
    if report.skipped and isinstance(report.longrepr, tuple) and not hasattr(report, "wasxfail"):
        file, line, reason = report.longrepr
        config.stash[_SKIPPED].add((str(file), line, str(reason).removeprefix("Skipped: ")))


class _Collector:
    """Takes the reports of one run, its own and those of other processes."""

    def __init__(self, config):
        self.config = config

    def pytest_runtest_logreport(self, report):
        _note(self.config, report)

    def pytest_collectreport(self, report):
        _note(self.config, report)


def pytest_sessionstart(session):
    session.config.pluginmanager.register(_Collector(session.config))


def unexpected(config):
    """Skipped tests whose reason matches no pattern of the list."""
    patterns = allowed_reasons()
    skipped = sorted(config.stash[_SKIPPED])
    return [skip for skip in skipped if not any(fnmatch.fnmatchcase(skip[2], pattern) for pattern in patterns)]


def pytest_sessionfinish(session):
    if (
        session.config.getoption("--no-skips")
        and not hasattr(session.config, "workerinput")
        and unexpected(session.config)
    ):
        session.exitstatus = session.exitstatus or pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter, config):
    if not config.getoption("--no-skips"):
        return
    for file, line, reason in unexpected(config):
        terminalreporter.write_line(f"SKIPPED UNEXPECTEDLY {file}:{line}: {reason}", red=True)
