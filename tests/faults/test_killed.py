"""A process that is killed at any call that changes a file leaves nothing half-written, and the next run succeeds."""

import shutil
import signal

import pytest
from injection import ALL, Action, Fault, Group, selected
from outputs import content
from scenarios import EVERY, FAST, FEW


def kill_everywhere(place, fault, *, force):
    """Kills the command at its n-th call, for every n, and runs it again."""
    options = {"groups": fault.groups, "without_renameat2": fault.without_renameat2}
    for n in selected(place.calls(force=force, **options)):
        folder = place.folder(force=force)
        ended = place.run(folder, fault.at_call(n), force=force)
        where = f"call {n}, {ended.last}"
        assert ended.status == -signal.SIGKILL, f"{where}: {ended.stderr}"
        assert_nothing_lost(place, folder, force=force, where=where)
        place.assert_next_run_succeeds(folder, force=force, where=where)
        shutil.rmtree(folder)


def assert_nothing_lost(place, folder, *, force, where):
    aside = [path for path in folder.iterdir() if path.suffix == ".old"]
    if not aside:
        place.assert_complete(folder, force=force, where=where)
        return
    assert force
    assert len(aside) == 1, where
    assert content(aside[0]) in place.old.values(), where


@pytest.mark.parametrize("place", EVERY, indirect=True)
def test_a_command_killed_at_any_call_leaves_nothing_half_written(place):
    kill_everywhere(place, Fault(Action.KILL), force=False)


@pytest.mark.parametrize("place", FEW, indirect=True)
def test_a_command_killed_at_any_call_with_force_loses_nothing(place):
    kill_everywhere(place, Fault(Action.KILL), force=True)


@pytest.mark.parametrize("place", FAST, indirect=True)
def test_without_a_call_that_swaps_names_nothing_is_lost_either(place):
    kill_everywhere(place, Fault(Action.KILL, without_renameat2=True), force=True)


@pytest.mark.parametrize("place", EVERY if ALL else FAST, indirect=True)
def test_a_command_killed_in_the_middle_of_a_write_leaves_nothing_half_written(place):
    kill_everywhere(place, Fault(Action.KILL_HALFWAY, groups=Group.WRITE), force=False)
