"""Tensors live exactly as long as their last view, on any thread."""

from __future__ import annotations

import gc
import threading
import weakref
from typing import Any

import hami
import pytest

np = pytest.importorskip("numpy", reason="numpy is not installed")


def through(backend: str, data: Any) -> Any:
    with hami.pipe(backend) as pipe:
        return pipe({"data": data})["result"]


class Tracked(np.ndarray):  # type: ignore[type-arg, misc]
    """An array that supports weak references."""


def gone(*watched: weakref.ref[Any]) -> bool:
    through("Identity", None)  # the next call frees objects that threads of the core released
    gc.collect()
    return all(one() is None for one in watched)


def test_the_producer_lives_as_long_as_any_view() -> None:
    array = np.arange(4.0).view(Tracked)
    watched = weakref.ref(array)
    where = array.ctypes.data
    result = through("ContiguousTensor", array)
    del array
    gc.collect()
    assert watched() is not None
    view = hami.to_numpy(result)
    del result
    gc.collect()
    assert watched() is not None
    assert view.ctypes.data == where
    assert view.tolist() == [0, 1, 2, 3]
    del view
    assert gone(watched)


def test_tensors_that_no_consumer_imported_are_freed() -> None:
    array = np.arange(4.0).view(Tracked)
    watched = weakref.ref(array)
    result = through("ContiguousTensor", array)
    capsules = [result.__dlpack__(), result.__dlpack__(max_version=(1, 0)), memoryview(result)]
    del array, result
    assert watched() is not None
    del capsules
    assert gone(watched)


def test_tensors_may_be_freed_on_any_thread() -> None:
    watched = []
    node = {"backend": "S[BackgroundThread[ContiguousTensor],SoftmaxTensor]", "instance_num": 2}
    with hami.pipe(node) as pipe:
        lock = threading.Lock()

        def calls() -> None:
            for _ in range(50):
                array = np.arange(4.0).view(Tracked)
                with lock:
                    watched.append(weakref.ref(array))
                pipe.submit({"data": array}).result(60)

        threads = [threading.Thread(target=calls) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(watched) == 200
    assert gone(*watched)
