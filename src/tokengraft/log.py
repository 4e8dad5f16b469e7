"""`logger`: what long operations are doing, for `logging`, under the name `tokengraft`. By default nothing is shown."""

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager

logger = logging.getLogger("tokengraft")
logger.addHandler(logging.NullHandler())


@contextmanager
def stage(what: str) -> Iterator[None]:
    """Logs the start of a long operation and how long it took, at the level INFO. Also a decorator."""
    logger.info("%s", what)
    start = time.monotonic()
    yield
    logger.info("%s: done in %.1f s", what, time.monotonic() - start)
