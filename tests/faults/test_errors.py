"""A full disk, a read-only or damaged file system, short writes: an error with what to do, and no leftovers."""

import errno
import shutil

import pytest
from injection import ALL, Action, Fault, Group, selected
from scenarios import EVERY, FAST, FEW

FULL = Fault(Action.FAIL, errno.ENOSPC, repeated=True, groups=Group.NEEDS_SPACE)
QUOTA = Fault(Action.FAIL, errno.EDQUOT, repeated=True, groups=Group.NEEDS_SPACE)
READ_ONLY = Fault(Action.FAIL, errno.EROFS, repeated=True)
REFUSED = Fault(Action.FAIL, errno.EACCES)
FAULTS = {"quota": QUOTA, "read-only": READ_ONLY, "no": REFUSED}


def fail_everywhere(place, fault, *, force):
    """Lets the n-th call fail, for every n: the command succeeds, or ends with an error that says what to do."""
    for n in selected(place.calls(force=force, groups=fault.groups)):
        folder = place.folder(force=force)
        ended = place.run(folder, fault.at_call(n), force=force)
        where = f"call {n}, {ended.last}: {ended.stderr}"
        place.assert_complete(folder, force=force, where=where)
        if ended.status == 0:
            assert place.is_new(folder), where
        else:
            assert_explained(ended, where)
        assert_removed(place, folder, fault, force=force, where=where)
        shutil.rmtree(folder)


def assert_explained(ended, where):
    assert ended.status == 2, where
    assert "Traceback" not in ended.stderr, where
    error = ended.stderr[ended.stderr.index("error: ") :]
    assert "cannot" in error, where
    assert "`" in error, where
    assert "hint: " in error, where


def assert_removed(place, folder, fault, *, force, where):
    """No leftovers, except where files could not be removed, or are counts for the next run; that removes them."""
    if not fault.groups & Group.REMOVE:
        place.assert_clean(folder, where, kept=place.scenario.kept)
    if place.leftovers(folder):
        again = force or any((folder / name).exists() for name in place.scenario.outputs)
        ended = place.run(folder, force=again)
        assert ended.status == 0, f"{where}, then {ended.stderr}"
        place.assert_clean(folder, where)


@pytest.mark.parametrize("place", EVERY if ALL else FEW, indirect=True)
def test_a_disk_that_is_full_from_any_call_on_gives_an_error_with_what_to_do(place):
    fail_everywhere(place, FULL, force=False)


@pytest.mark.parametrize("place", FAST, indirect=True)
def test_a_full_disk_does_not_lose_what_force_would_replace(place):
    fail_everywhere(place, FULL, force=True)


@pytest.mark.parametrize("place", EVERY if ALL else FEW, indirect=True)
def test_a_call_that_fails_gives_an_error_with_what_to_do(place):
    fail_everywhere(place, Fault(Action.FAIL, errno.EIO), force=False)


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
@pytest.mark.parametrize("place", FAST, indirect=True)
def test_a_quota_and_missing_permissions_give_an_error_with_what_to_do(place, fault):
    fail_everywhere(place, fault, force=False)


def assert_unnoticed(place, fault):
    for n in selected(place.calls(groups=fault.groups)):
        folder = place.folder()
        ended = place.run(folder, fault.at_call(n))
        assert ended.status == 0, f"call {n}, {ended.last}: {ended.stderr}"
        assert place.is_new(folder), f"call {n}, {ended.last}"
        shutil.rmtree(folder)


@pytest.mark.parametrize("place", EVERY, indirect=True)
def test_writes_of_half_the_bytes_change_nothing(place):
    folder = place.folder()
    ended = place.run(folder, Fault(Action.SHORT, at=1, repeated=True, groups=Group.WRITE))
    assert ended.status == 0, ended.stderr
    assert place.is_new(folder)


@pytest.mark.parametrize("place", FAST, indirect=True)
def test_one_write_of_half_the_bytes_changes_nothing(place):
    assert_unnoticed(place, Fault(Action.SHORT, groups=Group.WRITE))


@pytest.mark.parametrize("place", FAST, indirect=True)
def test_calls_that_a_signal_interrupts_are_repeated(place):
    assert_unnoticed(place, Fault(Action.FAIL, errno.EINTR, groups=Group.WRITE))
