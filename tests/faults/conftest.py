"""The process that runs commands with faults, and a folder for every run."""

import shutil
import sys

import pytest
from injection import Fault, Server
from outputs import content
from scenarios import SCENARIOS, write_inputs


class Place:
    """Runs a scenario in new folders, without and with an older result."""

    def __init__(self, server, root, scenario, results):
        self.server, self.root, self.scenario = server, root, scenario
        self.made = 0
        if scenario not in results:
            old = self._result(scenario.old) if scenario.old else None
            # A report shows the command.
            results[scenario] = old, [self._result(scenario.arguments), self._result((*scenario.arguments, "--force"))]
        self.old, self.new = results[scenario]

    def _result(self, arguments):
        folder = self.folder()
        ended = self.server.run(arguments, folder)
        assert ended.status == 0, ended.stderr
        self.assert_clean(folder)
        return {name: content(folder / name) for name in self.scenario.outputs}

    def folder(self, *, force=False):
        """A new folder with the inputs; with ``force``, also with the older result."""
        self.made += 1
        folder = self.root / str(self.made)
        folder.mkdir()
        (folder / "inputs").symlink_to(self.root / "inputs")
        if force:
            for name, data in self.old.items():
                write(folder / name, data)
        return folder

    def run(self, folder, fault=Fault(), *, force=False):  # noqa: B008 (frozen)
        arguments = [*self.scenario.arguments, *(["--force"] if force else [])]
        return self.server.run(arguments, folder, fault)

    def calls(self, *, force=False, **options):
        """How many calls a run without a fault makes that are counted."""
        folder = self.folder(force=force)
        ended = self.run(folder, Fault(**options), force=force)
        assert ended.status == 0, ended.stderr
        self.assert_clean(folder)
        shutil.rmtree(folder)
        return ended.calls

    def assert_complete(self, folder, *, force, where):
        """Every output is complete: the old one, the new one, or none."""
        for name in self.scenario.outputs:
            before = self.old[name] if force else None
            complete = [before, *(new[name] for new in self.new)]
            assert content(folder / name) in complete, f"`{name}` is incomplete after {where}"

    def is_new(self, folder):
        return {name: content(folder / name) for name in self.scenario.outputs} in self.new

    def leftovers(self, folder):
        expected = {"inputs", "tmp", *self.scenario.outputs}
        found = {path.name for path in folder.iterdir()} - expected
        return sorted(found | {f"tmp/{path.name}" for path in (folder / "tmp").iterdir()})

    def assert_clean(self, folder, where="", kept=()):
        assert [name for name in self.leftovers(folder) if name not in kept] == [], where

    def assert_next_run_succeeds(self, folder, *, force, where):
        """With outputs that are complete already, the next run needs --force."""
        complete = [name for name in self.scenario.outputs if (folder / name).exists()]
        ended = self.run(folder, force=force)
        if complete and not force:
            assert ended.status == 2, f"{where}: {ended.stderr}"
            assert "exists; the output must be new" in ended.stderr
            ended = self.run(folder, force=True)
        assert ended.status == 0, f"{where}: {ended.stderr}"
        assert self.is_new(folder), where
        self.assert_clean(folder, where, kept=[path.name for path in folder.iterdir() if path.suffix == ".old"])


def write(path, data):
    """Writes a file, or the files of a folder."""
    files = {path: data} if isinstance(data, bytes) else {path / name: one for name, one in data.items()}
    for file, content_ in files.items():
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content_)


@pytest.fixture(scope="session")
def server(tmp_path_factory):
    if sys.platform != "linux" or not (shutil.which("cc") or shutil.which("gcc")):
        pytest.skip("needs Linux and a C compiler")
    server = Server(tmp_path_factory.mktemp("server"))
    yield server
    server.close()


@pytest.fixture(scope="session")
def fault_inputs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("faults") / "inputs"
    write_inputs(folder)
    return folder


@pytest.fixture(scope="session")
def fault_results():
    """The results of scenarios without faults: the older one, and the new one without and with --force."""
    return {}


@pytest.fixture
def place(request, server, fault_inputs, fault_results, tmp_path):
    """A `Place` for the scenario that the test is parametrized with. Inputs are compared afterwards."""
    (tmp_path / "inputs").symlink_to(fault_inputs)
    before = content(fault_inputs)
    yield Place(server, tmp_path, SCENARIOS[request.param], fault_results)
    assert content(fault_inputs) == before, "an input has changed"
