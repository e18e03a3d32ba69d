"""Work spread over threads that Ctrl-C does not have to wait for.

A ThreadPoolExecutor is joined when the interpreter ends: one thread that reads a silent socket, or hashes a 50 GB
file, would hold the process for as long. Daemon threads do not.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Sequence
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")


def run_all(items: Sequence[T], work: Callable[[T], R], jobs: int, stop: threading.Event | None = None) -> list[R]:
    """The results of `work` on every item, in order. The first error ends it: `stop` is set and the error is raised.

    On Ctrl-C, too, `stop` is set and this returns at once; `work` should look at it between blocks.
    """
    stop = stop or threading.Event()
    todo: queue.SimpleQueue[int] = queue.SimpleQueue()
    done: queue.SimpleQueue[tuple[int, R | None, BaseException | None]] = queue.SimpleQueue()
    for index in range(len(items)):
        todo.put(index)

    def worker() -> None:
        while not stop.is_set():
            try:
                index = todo.get_nowait()
            except queue.Empty:
                return
            try:
                done.put((index, work(items[index]), None))
            except BaseException as err:  # noqa: BLE001 - handed to the caller's thread and raised there
                done.put((index, None, err))

    threads = [threading.Thread(target=worker, daemon=True) for _ in range(max(1, min(jobs, len(items))))]
    for thread in threads:
        thread.start()
    results: dict[int, R] = {}
    try:
        for _ in items:
            index, value, error = done.get()
            if error is not None:
                raise error
            results[index] = value  # type: ignore[assignment]
    except BaseException:
        stop.set()
        for thread in threads:  # let those that look at `stop` put their files in order
            thread.join(timeout=1.0 / len(threads))
        raise
    return [results[i] for i in range(len(items))]
