"""Executors: what is accepted, what is refused, and that a specification travels once."""

import multiprocessing
import os
import threading
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor

import pytest

from tabi.runtime.workers import SMALL, Workers, run_unit


class Elsewhere(Executor):
    """Runs at once, as a worker that shares no memory would: it keeps what was sent."""

    def __init__(self):
        self.sent = []
        self.closed = False

    def submit(self, function, *args, **kwargs):
        self.sent.append(args)
        future = Future()
        try:
            future.set_result(function(*args, **kwargs))
        except Exception as error:
            future.set_exception(error)
        return future

    def shutdown(self, wait=True, *, cancel_futures=False):
        self.closed = True


class Adding:
    """A specification; `number` makes each one different."""

    def __init__(self, number, data=""):
        self.number, self.data = number, data

    def __call__(self, task):
        if task is None:
            raise RuntimeError("no task")
        return task + self.number


def results(workers, tasks):
    futures = [(workers.submit(task), task) for task in tasks]
    return [workers.result(future, task) for future, task in futures]


def test_without_an_executor_tasks_run_on_threads_of_this_process():
    names = []

    def name(task):
        names.append(threading.current_thread().name)
        return task

    with Workers(name) as workers:
        assert results(workers, range(8)) == list(range(8))
    assert all(text.startswith("tabi") for text in names)
    assert not any(t.name.startswith("tabi") for t in threading.enumerate()), "closed at the end"


def test_a_large_specification_travels_only_where_it_is_missing():
    executor, data = Elsewhere(), "x" * 2 * SMALL
    with Workers(Adding(100.25, data), executor) as workers:
        assert results(workers, [1, 2, 3]) == [101.25, 102.25, 103.25]
    blobs = [args[1] for args in executor.sent if args[1] is not None]
    # All three were submitted before the first answer said that nothing was known yet.
    assert len(executor.sent) == 6 and len(blobs) == 3
    with Workers(Adding(100.25, data), executor) as workers:
        assert results(workers, [4]) == [104.25]
    assert len(executor.sent) == 7 and executor.sent[-1][1] is None
    assert not executor.closed, "an executor of the user's is the user's to close"


def test_a_small_specification_travels_along():
    executor = Elsewhere()
    with Workers(Adding(0.5), executor) as workers:
        assert results(workers, [1, 2]) == [1.5, 2.5]
    assert [args[1] is None for args in executor.sent] == [False, False]


def test_a_factory_is_called_and_what_it_makes_is_closed():
    made = []

    def factory():
        made.append(Elsewhere())
        return made[0]

    with Workers(Adding(7), factory) as workers:
        assert results(workers, [1]) == [8]
    assert made[0].closed


def test_a_dask_client_is_asked_for_its_executor():
    class Client:
        def get_executor(self):
            return Elsewhere()

    with Workers(Adding(8), Client()) as workers:
        assert results(workers, [1]) == [9]


def test_a_users_thread_pool_stays_open():
    with ThreadPoolExecutor(2) as pool:
        with Workers(Adding(1), pool) as workers:
            assert results(workers, [1, 2]) == [2, 3]
        assert pool.submit(int).result() == 0


@pytest.mark.parametrize("executor", [None, Elsewhere()])
def test_an_error_in_a_task_arrives_as_it_is(executor):
    with Workers(Adding(2), executor) as workers:
        with pytest.raises(RuntimeError, match="no task"):
            results(workers, [None])


@pytest.mark.parametrize(("set_to", "expected"), [(None, "1"), ("3", "3")])
def test_a_worker_process_gets_one_thread_unless_told_otherwise(monkeypatch, set_to, expected):
    def threads_of_xla(task):
        return os.environ.get("NPROC")

    monkeypatch.delenv("NPROC", raising=False)
    if set_to:
        monkeypatch.setenv("NPROC", set_to)
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=context) as pool:
        assert results(Workers(threads_of_xla, pool), [None]) == [expected]
    with ThreadPoolExecutor(1) as pool:
        assert results(Workers(threads_of_xla, pool), [None]) == [set_to]


def test_a_forked_pool_is_refused_with_the_recipe():
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("fork")) as pool:
        with pytest.raises(ValueError, match=r"deadlocks.*get_context\(\"spawn\"\)"):
            Workers(Adding(0), pool)


@pytest.mark.parametrize("wrong", [4, "threads", lambda: 3])
def test_anything_else_is_refused_with_what_is_expected(wrong):
    with pytest.raises(TypeError, match=r"executor must be None.*Executor.*got (int|str)"):
        Workers(Adding(0), wrong)


def test_a_worker_keeps_the_specifications_it_used_last():
    executor = Elsewhere()
    for number in range(40):
        with Workers(Adding(1000 + number), executor) as workers:
            assert results(workers, [0]) == [1000 + number]
    from tabi.runtime import workers as module

    assert len(module._KNOWN) <= module._MOST_KNOWN


def test_an_unknown_specification_says_so():
    from tabi.runtime.workers import UnknownSpecification

    with pytest.raises(UnknownSpecification):
        run_unit("no such digest", None, 1)
