"""Signals at any call that changes a file: exit code, message, no leftovers, nothing lost."""

import shutil
import signal

import pytest
from injection import ALL, Action, Fault, selected
from scenarios import EVERY, FAST, FEW

MESSAGES = {
    signal.SIGINT: "stopped; unfinished output was removed",
    signal.SIGTERM: "stopped by SIGTERM; unfinished output was removed",
    signal.SIGHUP: "stopped by SIGHUP; unfinished output was removed",
}


def stop_everywhere(place, number, *, force=False, repeated=False):
    for n in selected(place.calls(force=force)):
        folder = place.folder(force=force)
        ended = place.run(folder, Fault(Action.SIGNAL, number, at=n, repeated=repeated), force=force)
        where = f"call {n}, {ended.last}: {ended.stderr}"
        place.assert_complete(folder, force=force, where=where)
        assert "Traceback" not in ended.stderr, where
        assert "Exception ignored" not in ended.stderr, where
        if ended.status == 0:
            assert place.is_new(folder), where
        else:
            assert ended.status == 128 + number, where
            assert ended.stderr.endswith(f"{MESSAGES[number]}\n"), where
        if not repeated:
            place.assert_clean(folder, where, kept=place.scenario.kept)
        place.assert_next_run_succeeds(folder, force=force, where=where)
        shutil.rmtree(folder)


@pytest.mark.parametrize("place", EVERY if ALL else FEW, indirect=True)
def test_an_interrupt_at_any_call_stops_the_command_without_leftovers(place):
    stop_everywhere(place, signal.SIGINT)


@pytest.mark.parametrize("place", FAST[:1], indirect=True)
def test_a_terminal_that_closes_stops_the_command_without_leftovers(place):
    stop_everywhere(place, signal.SIGHUP)


@pytest.mark.parametrize("place", FAST, indirect=True)
def test_a_signal_at_any_call_loses_nothing_that_force_would_replace(place):
    stop_everywhere(place, signal.SIGTERM, force=True)


@pytest.mark.parametrize("place", FAST, indirect=True)
def test_more_signals_while_the_first_one_is_handled_lose_nothing(place):
    stop_everywhere(place, signal.SIGINT, force=True, repeated=True)
