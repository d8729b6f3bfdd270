"""The contenders: each returns, for a work, the function that a caller calls with a payload."""

from __future__ import annotations

import asyncio
import queue
import threading
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

from _works import Work

Call = Callable[[Any], Any]
AsyncCall = Callable[[Any], Awaitable[Any]]


def direct(work: Work) -> Call:
    """Every caller does all of the work itself: no scheduler, no limit."""
    model = work.make_model()
    return lambda payload: model([work.prepare(payload)])[0]


def pool(work: Work) -> Call:
    """A ThreadPoolExecutor with one thread for each instance."""
    from concurrent.futures import ThreadPoolExecutor

    run = direct(work)
    threads = ThreadPoolExecutor(work.instances)
    return lambda payload: threads.submit(run, payload).result()


def batcher(work: Work) -> Call:
    """A typical hand-written batcher: a queue.Queue, a thread for each instance, an Event for each request."""
    waiting: queue.Queue[tuple[Any, threading.Event, list[Any]]] = queue.Queue()

    def serve(model: Callable[[list[Any]], list[Any]]) -> None:
        while True:
            batch = [waiting.get()]
            end = time.perf_counter() + work.wait
            while len(batch) < work.max_batch:
                try:
                    left = end - time.perf_counter()
                    batch.append(waiting.get(timeout=left) if left > 0 else waiting.get_nowait())
                except queue.Empty:
                    break
            for (_, done, answer), result in zip(batch, model([entry[0] for entry in batch]), strict=True):
                answer.append(result)
                done.set()

    for _ in range(work.instances):
        threading.Thread(target=serve, args=(work.make_model(),), daemon=True).start()

    def call(payload: Any) -> Any:
        done: threading.Event = threading.Event()
        answer: list[Any] = []
        waiting.put((work.prepare(payload), done, answer))
        done.wait()
        return answer[0]

    return call


def limit(work: Work) -> Call:
    """The maximum of the machine: full batches in a tight loop, without requests. A call is a batch."""
    model = work.make_model()
    if not work.gains:
        return direct(work)
    full = [work.prepare(payload) for payload in work.payloads() * work.max_batch][: work.max_batch]
    return lambda payload: model(full)[0]


def hami(work: Work) -> Call:
    pipe = hami_pipe(work)
    return lambda payload: work.answer(pipe({"data": payload})["result"])


def best(work: Work) -> Call:
    """HAMi with the settings that were found to be the fastest by hand."""
    return hami(replace(work, node={**work.node, **work.best}))


def default(work: Work) -> Call:
    """HAMi without any setting of the scheduling or of the engine."""
    pipe = hami_pipe(work, tuned=False)
    return lambda payload: work.answer(pipe({"data": payload})["result"])


TUNING = {"max", "batching_timeout", "instance_num", "threads"}


def hami_pipe(work: Work, *, tuned: bool = True) -> Any:
    import hami

    if work.node:
        return hami.pipe({key: value for key, value in work.node.items() if tuned or key not in TUNING})

    @hami.register
    class Modelled(hami.Backend):
        max: Any = work.max_batch if tuned else "auto"

        def init(self, options: Any) -> None:
            self._model = work.make_model()

        def forward(self, batch: list[Any]) -> None:
            for item, result in zip(batch, self._model([item["data"] for item in batch]), strict=True):
                item["result"] = result

    return hami.pipe({"backend": "Modelled", **({"instance_num": work.instances} if tuned else {})})


def omniback(work: Work) -> Call:
    """A Python backend that prepares and runs; omniback's own Identity where HAMi runs its own."""
    import omniback as om

    class Modelled:
        def __init__(self) -> None:
            self._model = work.make_model()

        def max(self) -> int:
            return work.max_batch if work.gains else 1

        def forward(self, batch: list[Any]) -> None:
            prepared = [work.prepare(as_numpy(item["data"])) for item in batch]
            for item, result in zip(batch, self._model(prepared), strict=True):
                item["result"] = result

    om.register("Modelled", Modelled)
    own = "Identity" in work.node.get("backend", "")
    # Without a queue delay it does not batch.
    wait = 0 if own else max(2, int(work.wait * 1e3))
    backend = "Identity" if own else "Modelled"
    pipe = om.pipe({"node": {"backend": backend, "batching_timeout": wait, "instance_num": work.instances}})

    def call(payload: Any) -> Any:
        request = {"data": payload}
        pipe(request)
        return request["result"]

    return call


def as_numpy(data: Any) -> Any:
    """Convert the tensors that omniback passes to its backends."""
    import numpy as np

    return np.from_dlpack(data) if hasattr(data, "__dlpack__") else data


def tasks_hami(work: Work) -> AsyncCall:
    pipe = hami_pipe(work)

    async def call(payload: Any) -> Any:
        return work.answer((await pipe.acall({"data": payload}))["result"])

    return call


def tasks_queue(work: Work) -> AsyncCall:
    """An asyncio.Queue, one task that serves it, a future for each request."""
    waiting: asyncio.Queue[tuple[Any, asyncio.Future[Any]]] = asyncio.Queue()
    model = work.make_model()
    server: list[asyncio.Task[None]] = []

    async def serve() -> None:
        while True:
            payload, done = await waiting.get()
            done.set_result(model([payload])[0])

    async def call(payload: Any) -> Any:
        if not server:
            server.append(asyncio.create_task(serve()))
        done: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        waiting.put_nowait((work.prepare(payload), done))
        return await done

    return call
