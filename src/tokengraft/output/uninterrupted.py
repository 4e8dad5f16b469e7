"""`uninterrupted`: runs a few steps to their end before a signal is handled."""

import inspect
import signal
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from types import FrameType

_SIGNALS = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Holds back signals that would raise an exception, such as Ctrl-C, until the block ends.

    For short blocks that must not stop halfway: an exception after a folder was made, and before it is known to the
    code that removes it, would leave the folder. Other threads than the main one do not handle signals.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    handlers = {number: handler for number in _SIGNALS if callable(handler := signal.getsignal(number))}
    received: list[int] = []
    is_held = True

    def hold(number: int, frame: FrameType | None) -> None:
        # A signal that comes between two calls of `signal.signal` may raise. This handler then stays, and passes on.
        if is_held:
            received.append(number)
        else:
            handlers[number](number, frame)

    try:
        for number in handlers:
            signal.signal(number, hold)
        yield
    finally:
        is_held = False
        # All steps are done, the last one first, also if one raises. The exception of the first signal wins.
        with ExitStack() as steps:
            for number in dict.fromkeys(received):
                # Not sent again: who listens to the file descriptor of `set_wakeup_fd` has got it.
                steps.callback(handlers[number], number, inspect.currentframe())
            for number, handler in handlers.items():
                steps.callback(signal.signal, number, handler)
