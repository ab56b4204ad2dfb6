"""Units of work on threads, processes or any `concurrent.futures.Executor`."""

import hashlib
import multiprocessing
import os
import threading
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from typing import Any

import cloudpickle

# Specifications known to this process, by digest.
_KNOWN: OrderedDict[str, Any] = OrderedDict()
_KNOWN_LOCK = threading.Lock()
_MOST_KNOWN = 16

# A specification up to this size (bytes) travels with every task, which saves workers that do not
# know it yet a round trip; a larger one (it holds the user's data) only where it is missing.
SMALL = 100_000


class UnknownSpecification(Exception):
    """A worker was asked to run a specification that it has not been sent yet."""


def one_thread() -> None:
    """Give this process one XLA thread, unless NPROC or its first computation has settled that.

    For processes beside others: with a thread for each of the machine's cores in every one of them
    they are in each other's way (on 13 of 16 cores, each program ran more than ten times as long).
    """
    os.environ.setdefault("NPROC", "1")


def run_unit(digest: str, blob: bytes | None, task: Any) -> Any:
    """Run one task under a specification; the function every worker executes.

    It is unpacked once per process. A worker that does not know the digest and got no blob says
    so, and the unit is sent again with it.
    """
    if multiprocessing.parent_process() is not None:
        one_thread()
    with _KNOWN_LOCK:
        if digest not in _KNOWN:
            if blob is None:
                raise UnknownSpecification(digest)
            _remember(digest, cloudpickle.loads(blob))
        specification = _KNOWN[digest]
    return specification(task)


def _remember(digest: str, specification: Any) -> None:
    _KNOWN[digest] = specification
    _KNOWN.move_to_end(digest)
    while len(_KNOWN) > _MOST_KNOWN:
        _KNOWN.popitem(last=False)


class Workers:
    """Runs tasks of one specification on an executor.

    Parameters
    ----------
    specification
        A callable task -> result. Threads call this very object; other workers get a pickled
        copy, once each.
    executor
        None for one thread per core, an executor, a Dask `Client`, or a function without
        arguments that makes an executor (closed at the end).
    """

    def __init__(self, specification: Callable[[Any], Any], executor: Any = None) -> None:
        self._executor, self._owned = _resolve(executor)
        self._specification = specification
        self._local = isinstance(self._executor, ThreadPoolExecutor)
        self._blob = b"" if self._local else cloudpickle.dumps(specification)
        self._digest = hashlib.sha256(self._blob).hexdigest()

    def __enter__(self) -> "Workers":
        return self

    def __exit__(self, *exception: object) -> None:
        if self._owned:
            self._executor.shutdown(wait=True, cancel_futures=True)

    def submit(self, task: Any) -> Future:
        """Begin one task."""
        if self._local:
            return self._executor.submit(self._specification, task)
        blob = self._blob if len(self._blob) <= SMALL else None
        return self._executor.submit(run_unit, self._digest, blob, task)

    def result(self, future: Future, task: Any) -> Any:
        """Wait for a task, sending the specification along if its worker lacked it."""
        try:
            return future.result()
        except UnknownSpecification:
            return self._executor.submit(run_unit, self._digest, self._blob, task).result()


def _resolve(executor: Any) -> tuple[Executor, bool]:
    if executor is None:
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
        return ThreadPoolExecutor(cores, thread_name_prefix="tabi"), True
    owned = False
    if not isinstance(executor, Executor) and hasattr(executor, "get_executor"):
        executor = executor.get_executor()
    elif not isinstance(executor, Executor) and callable(executor):
        executor, owned = executor(), True
    if not isinstance(executor, Executor):
        raise TypeError(
            "executor must be None, a concurrent.futures.Executor, a Dask Client or a function "
            f"that returns one, got {type(executor).__name__}"
        )
    if isinstance(executor, ProcessPoolExecutor):
        _refuse_fork(executor)
    return executor, owned


def _refuse_fork(executor: ProcessPoolExecutor) -> None:
    context = getattr(executor, "_mp_context", None)
    if context is not None and context.get_start_method() == "fork":
        raise ValueError(
            "this ProcessPoolExecutor forks, which deadlocks once JAX has run; make it with "
            'ProcessPoolExecutor(mp_context=multiprocessing.get_context("spawn"))'
        )
