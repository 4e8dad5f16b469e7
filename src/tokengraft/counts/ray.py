"""Counts a corpus on Ray. The only module that imports Ray; nothing else of the package imports it.

Ray Data reads the corpus with a data source whose tasks use tokengraft's own reader and count in place, so that text
never leaves its task. Ray Data's sort brings the counts of each bucket together, a task adds them up, and this process
takes the sums one after the other.
"""

import logging
import os
import pickle
import shutil
import signal
import socket
import tempfile
import threading
import time
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import ray
import ray.data
from ray.data.block import BlockMetadata
from ray.data.context import ShuffleStrategy
from ray.data.datasource import ReadTask

from tokengraft import _core
from tokengraft.corpus.block import Input
from tokengraft.counts.threads import CountJob, new_counter
from tokengraft.counts.units import (
    Summary,
    Unit,
    count_unit,
    merge_bucket,
    merged,
    n_buckets,
    unit_size,
    units,
    unpack,
)
from tokengraft.errors import OptionError, Progress, TokengraftError, command_runs, on_command_line, option

_LONGEST_FOLDER = 45
"""Characters. Ray's sockets are in its folder, and a socket may have a path of 107."""
_SECONDS_TO_CONNECT = 10
_ONE_BLOCK, _SMALL_BLOCK = 1 << 50, 4 << 20
"""Bytes: tasks that count return one block each, and those that add up return blocks that the driver can read alone."""
_SCHEMA = pa.schema([("bucket", pa.int32()), ("table", pa.large_binary()), ("summary", pa.large_binary())])


@contextmanager
def counted_on_ray(
    job: CountJob, inputs: list[Input], progress: Progress | None
) -> Iterator[tuple[Summary, _core.Counter]]:
    """The summary of a corpus, and the counter with its counts, to be finished inside the block."""
    whole: frozenset[str] = frozenset()
    parts = {source.name for source in inputs if source.part}  # of a shard: each is an input
    while True:
        with new_counter(job) as counter:
            with _quiet(), _connected(job.count_options.address, job.count_options.workers):
                summary = _count(counter, job, inputs, whole, progress)
            cut_off = summary.cut_off - parts
            if not cut_off:
                yield summary, counter
                return
        # Nothing after an error in a file is counted, and only who reads all of the file knows where that is.
        whole |= cut_off


def _count(
    counter: _core.Counter, job: CountJob, inputs: list[Input], whole: frozenset[str], progress: Progress | None
) -> Summary:
    size = unit_size(inputs, max(int(ray.cluster_resources().get("CPU", 1)), 1))
    work, buckets = units(inputs, size, whole), n_buckets(inputs, size)
    if not work:
        return Summary()
    workers, one_thread = job.count_options.workers, replace(job.count_options, workers=1)
    reference = ray.put(pickle.dumps((replace(job, count_options=one_thread), command_runs())))
    try:
        with _settings(block_size=_ONE_BLOCK):
            tasks = _Units(work, reference, buckets)
            dataset = ray.data.read_datasource(tasks, override_num_blocks=len(work), concurrency=workers)
            total = sum(part.size for unit in work for part in unit)
            blocks: list[Any] = []  # references to the counts of every unit, which are finished in their order
            for block in (block for bundle in dataset.iter_internal_ref_bundles() for block in bundle.block_refs):
                unit = work[len(blocks)]
                blocks.append(block)
                if progress:
                    progress(unit[-1].name, sum(part.size for part in unit), total)
        with _settings(block_size=_SMALL_BLOCK):
            by_bucket = ray.data.from_arrow_refs(blocks).sort("bucket", boundaries=list(range(1, buckets)))
            merge = partial(_merge, _core.__version__, reference)
            sums = by_bucket.map_batches(merge, batch_size=None, batch_format="pyarrow", concurrency=workers)
            del dataset, blocks, by_bucket, block
            return merged(counter, _summaries(counter, sums))
    except Exception as error:
        understood = _understood(error)
        raise understood from (None if understood is not error else error.__cause__)


def _summaries(counter: _core.Counter, sums: Any) -> Iterator[Summary]:
    """The summaries of all buckets. Their tables are added to the counter on the way."""
    for batch in sums.iter_batches(batch_size=None, batch_format="pyarrow", prefetch_batches=1):
        for table, summary in zip(batch.column("table"), batch.column("summary"), strict=True):
            if packed := table.as_py():
                counter.add(unpack(packed))
            if description := summary.as_py():
                yield pickle.loads(description)


class _Units(ray.data.Datasource):  # type: ignore[misc]
    """A data source with one task for each unit of work. A task returns one table."""

    def __init__(self, work: list[Unit], job: Any, buckets: int) -> None:
        super().__init__()
        self.units, self.job, self.buckets = work, job, buckets

    def get_name(self) -> str:
        return "Count"

    def estimate_inmemory_data_size(self) -> int | None:
        return None

    def get_read_tasks(self, *_: Any, **__: Any) -> list[Any]:
        metadata = BlockMetadata(num_rows=None, size_bytes=None, input_files=None, exec_stats=None)
        version = _core.__version__
        return [
            ReadTask(partial(_read, version, self.job, number, unit, self.buckets), metadata, _SCHEMA)
            for number, unit in enumerate(self.units)
        ]


def _read(version: str, reference: Any, number: int, unit: Unit, buckets: int) -> list[pa.Table]:
    """In a worker: the counts of a unit by bucket. Units have their summaries in different buckets."""
    with _job(version, reference) as job:
        packed, summary = count_unit(job, unit, buckets)
    rows = [(bucket, table, b"") for bucket, tables in enumerate(packed) for table in tables]
    rows.append((number % buckets, b"", pickle.dumps(summary)))
    return [_table(rows)]


def _merge(version: str, reference: Any, batch: pa.Table) -> Iterator[pa.Table]:
    """In a worker: the sum of a bucket."""
    if not len(batch):
        return
    bucket = batch.column("bucket")[0].as_py()
    tables = (table.as_py() for table in batch.column("table") if len(table.as_buffer()))
    summaries = (summary.as_py() for summary in batch.column("summary") if len(summary.as_buffer()))
    with _job(version, reference) as job:
        for table, summary in merge_bucket(job, tables, summaries):
            yield _table([(bucket, table, summary)])


def _table(rows: list[tuple[int, bytes, bytes]]) -> pa.Table:
    columns = zip(*rows, strict=True)
    return pa.table([pa.array(column, each.type) for column, each in zip(columns, _SCHEMA, strict=True)], _SCHEMA)


_JOBS: dict[str, tuple[CountJob, bool]] = {}
"""In a worker: the last job, and whether a command runs it. Every unit needs the tokenizer."""


@contextmanager
def _job(version: str, reference: Any) -> Iterator[CountJob]:
    """The job in a worker. Inside the block, errors are worded as in the program that waits for it."""
    if version != _core.__version__:
        raise OptionError(
            f"a Ray worker has tokengraft {_core.__version__}, and this program has {version}",
            hint="install the same version on all machines",
        )
    if reference.hex() not in _JOBS:
        _JOBS.clear()
        _JOBS[reference.hex()] = pickle.loads(ray.get(reference))
    job, of_command = _JOBS[reference.hex()]
    with on_command_line(of_command):
        yield job


class _Kept(ExitStack):
    """What ends a connection that is kept."""

    connected = False
    """Whether there is one. Another one, which the program had before, does not count."""


_kept: _Kept | None = None
"""Set by `kept`."""


@contextmanager
def kept() -> Iterator[None]:
    """Keeps a connection to Ray that is made inside the block until its end, so that several corpora can use it."""
    global _kept
    if _kept:
        yield
        return
    with _Kept() as stack:
        _kept = stack
        try:
            yield
        finally:
            _kept = None


@contextmanager
def _connected(address: str | None, workers: int | None) -> Iterator[None]:
    """A connection to Ray. What was connected or started before stays so; what is started here is stopped."""
    if ray.is_initialized():
        if address not in (None, "auto") and not (_kept and _kept.connected):
            raise OptionError(
                f"the program is connected to Ray already, and the address {address!r} was given",
                hint="leave out the address, or disconnect first: ray.shutdown()",
            )
        yield
        return
    with nullcontext(_kept) if _kept else ExitStack() as stack:
        address = address or os.environ.get("RAY_ADDRESS")
        try:
            options = _of_cluster(address) if address else _of_this_machine(workers, stack)
            stack.callback(ray.shutdown)
            handler = signal.getsignal(signal.SIGTERM)
            ray.init(**options, log_to_driver=False, logging_level=logging.CRITICAL)
            if threading.current_thread() is threading.main_thread():
                signal.signal(signal.SIGTERM, handler)  # Ray has replaced it by one that ends the process at once
        except (OSError, OverflowError, ValueError, RuntimeError) as error:
            raise OptionError(
                f"cannot {f'connect to Ray at {address}' if address else 'start Ray'}: {error}",
                hint="check the address; without one, Ray is started on this machine",
            ) from error
        if _kept:
            _kept.connected = True
        yield


def _of_cluster(address: str) -> dict[str, Any]:
    """The options to connect to a cluster."""
    if address.startswith("ray://"):
        raise OptionError(
            f"{address} is an address of Ray Client, which Ray Data does not support well",
            hint=f"run the command on a machine of the cluster with {option('address', 'auto')}, or with `ray job "
            "submit`",
        )
    host, colon, port = address.rpartition(":")
    if colon and port.isdecimal():  # Ray itself waits for minutes
        with socket.create_connection((host.strip("[]"), int(port)), timeout=_SECONDS_TO_CONNECT):
            pass
    return {"address": address}


def _of_this_machine(workers: int | None, stack: ExitStack) -> dict[str, Any]:
    """The options to start Ray on this machine, in a folder that is removed at the end."""
    folder = tempfile.mkdtemp(prefix="tg-")
    stack.callback(_remove, Path(folder))
    # Processes of Ray get these. They are ended without a chance to remove their own temporary files.
    for name, value in (("TMPDIR", folder), ("RAY_USAGE_STATS_ENABLED", "0")):
        if name in os.environ:
            stack.callback(os.environ.__setitem__, name, os.environ[name])
        else:
            stack.callback(os.environ.pop, name)
        os.environ[name] = value
    options = {"address": "local", "include_dashboard": False, "num_cpus": workers}
    return options | ({"_temp_dir": folder} if len(folder) <= _LONGEST_FOLDER else {})


def _remove(folder: Path) -> None:
    """Removes the folder of Ray. Its last processes may still write to it."""
    for _ in range(100):
        shutil.rmtree(folder, ignore_errors=True)
        if not folder.exists():
            return
        time.sleep(0.1)


@contextmanager
def _quiet() -> Iterator[None]:
    """Without Ray's own messages and its warnings about its own code. Errors are raised, and progress is ours."""
    loggers = [logging.getLogger(name) for name in ("ray", "ray.data")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


@contextmanager
def _settings(*, block_size: int) -> Iterator[None]:
    """The settings of Ray Data for data sets that are made inside the block."""
    settings = ray.data.DataContext.get_current().copy()
    # Other shuffles keep state in actors, which cannot be restored after the loss of a machine.
    settings.shuffle_strategy = ShuffleStrategy.SORT_SHUFFLE_PULL_BASED
    settings.execution_options.preserve_order = True
    settings.enable_progress_bars = settings.print_on_execution_start = False
    settings.target_max_block_size = block_size
    with ray.data.DataContext.current(settings):
        yield


def _understood(error: BaseException) -> BaseException:
    """The error that a worker raised, if it is ours; otherwise the error itself."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, TokengraftError) and not isinstance(cause, ray.exceptions.RayError):
            return cause
        if "No module named 'tokengraft" in str(cause):
            return OptionError(
                "a Ray worker cannot import tokengraft", hint="install the same version on all machines of the cluster"
            )
        cause = getattr(cause, "cause", None) or cause.__cause__
    return error
