"""Two runs with one output, and folders that vanish meanwhile: one complete result, and a message for the other run."""

import shutil
import signal

import pytest
from injection import ALL, Action, Fault, selected
from outputs import content
from scenarios import EVERY, FAST, FEW

STOP = Fault(Action.SIGNAL, signal.SIGSTOP)


def run_twice(place, n, *, force):
    """A run that is stopped at its n-th call, until a second run of the same command has ended."""
    folder = place.folder(force=force)
    stopped = place.run(folder, STOP.at_call(n), force=force)
    assert stopped.status == "stopped", stopped.stderr
    second = place.run(folder, force=force)
    return folder, place.server.resume(), second


def run_twice_everywhere(place, *, force):
    for n in selected(place.calls(force=force)):
        folder, first, second = run_twice(place, n, force=force)
        where = f"call {n}, {first.last}: {first.stderr}{second.stderr}"
        assert place.is_new(folder), where
        assert 0 in (first.status, second.status), where
        for ended in (first, second):
            assert ended.status == 0 or "exists; the output must" in ended.stderr or "appeared" in ended.stderr, where
            assert "Traceback" not in ended.stderr, where
        assert force or first.status != second.status, where
        place.assert_clean(folder, where, kept=place.scenario.kept)
        shutil.rmtree(folder)


@pytest.mark.parametrize("place", EVERY if ALL else FEW, indirect=True)
def test_of_two_runs_at_once_one_succeeds_and_the_other_says_why_not(place):
    run_twice_everywhere(place, force=False)


@pytest.mark.parametrize("place", FAST, indirect=True)
def test_of_two_runs_at_once_with_force_the_result_is_that_of_one(place):
    run_twice_everywhere(place, force=True)


@pytest.mark.parametrize("place", FAST, indirect=True)
def test_a_folder_that_is_removed_during_the_run_gives_an_error(place):
    arguments = [part.replace("out", "folder/out") if part == "out" else part for part in place.scenario.arguments]
    folder = place.folder()
    (folder / "folder").mkdir()
    assert place.server.run(arguments, folder, Fault()).status == 0
    expected = content(folder / "folder/out")  # a report has its own command, so it is not the same as elsewhere
    for n in selected(place.calls()):
        folder = place.folder()
        (folder / "folder").mkdir()
        stopped = place.server.run(arguments, folder, STOP.at_call(n))
        assert stopped.status == "stopped", stopped.stderr
        shutil.rmtree(folder / "folder")
        ended = place.server.resume()
        where = f"call {n}, {ended.last}: {ended.stderr}"
        assert "Traceback" not in ended.stderr, where
        if ended.status == 0:
            assert content(folder / "folder/out") in (None, expected), where
        else:
            assert ended.status == 2, where
            assert "hint: " in ended.stderr, where
            assert content(folder / "folder/out") is None, where
        shutil.rmtree(folder)
