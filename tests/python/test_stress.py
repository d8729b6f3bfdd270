"""Many threads, every kind of fault, callbacks that submit, tasks that await in a loop, and pipes that are replaced.

Each request must end exactly once, with an outcome that it may have, and the statistics must add up. A full run takes
some minutes and prints how the requests ended:

    HAMI_STRESS_REQUESTS=1000000 HAMI_STRESS_THREADS=64 python -m pytest -s tests/python/test_stress.py
"""

from __future__ import annotations

import asyncio
import faulthandler
import itertools
import os
import random
import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import CancelledError, Future
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import hami
from running import TIMEOUT

REQUESTS = int(os.environ.get("HAMI_STRESS_REQUESTS", "20000"))
THREADS = int(os.environ.get("HAMI_STRESS_THREADS", "64"))
TASKS = int(os.environ.get("HAMI_STRESS_TASKS", "8"))  # in each event loop
PRIORITIES = [None, None, 0, 253, 254, 255]  # of a request: the three lanes
REPLACE_EVERY = 500  # requests, at most: a close takes its time
LIMIT_S = TIMEOUT + REQUESTS / 1000  # for the whole run

# What a request does in the backend, of 1000 requests. The others succeed.
FAULTS = {"raises": 30, "fails": 20, "sets no result": 20, "runs until it is cancelled": 2}
WRONG = [{"priority": 300}, {"priority": "high"}, {"timeout": "soon"}, {"deadline": "now"}, {1: 2}]  # never start
NO_DATA = {"request_size": 0}  # reaches its node, which fails it

# What the statistics of a node count a request as. Others may end in more than one way: they race with the backend.
COUNTED_AS = {
    "success": "completed",
    "NoResult": "completed",
    "Fault": "failed",
    "RequestError": "failed",
    "ReentrantCall": "failed",
    "QueueFull": "rejected",
}
RACES = ("DeadlineExceeded", "CancelledError", "PipeClosed")
ENDS = ("completed", "failed", "rejected", "expired", "cancelled")


NEVER = threading.Event()  # never set


class Fault(Exception):
    pass


class Runs:
    """How often each request ran in a backend that must not run it twice."""

    counts = bytearray()


def run_request(item: Any, number: int, what: str) -> None:
    if what == "raises":
        raise Fault(number)
    if what == "fails":
        item.fail(Fault(number))
    elif what == "runs until it is cancelled":
        while not item.cancelled:
            NEVER.wait(0.0002)
        item["result"] = "discarded"
    elif what != "sets no result":
        item["result"] = number + 1


def forward(self: hami.Backend, batch: list[Any]) -> None:
    for item in batch:
        number, what = item["data"]
        item["data"] = "spoilt"  # a retry must see what came in
        run_request(item, number, what)


def forward_once(self: hami.Backend, batch: list[Any]) -> None:
    """Like `forward`, but an exception concerns its request alone: the batch must not be retried."""
    for item in batch:
        number, what = item["data"]
        Runs.counts[number] += 1
        try:
            run_request(item, number, what)
        except Fault as error:
            item.fail(error)


def register(name: str, run: Callable[..., None], **attributes: Any) -> None:
    hami.register(name)(type(name, (hami.Backend,), {"forward": run, **attributes}))


def configurations() -> list[dict[str, Any]]:
    register("TestDedicated", forward, max=8)
    register("TestSerialized", forward, thread="serialized", max=4)
    register("TestConcurrent", forward, thread="concurrent", non_blocking=True, max=8)
    register("TestOnce", forward_once, idempotent=False, max=8)
    return [
        {"backend": "TestDedicated", "instance_num": 2, "max_queue_size": 32, "on_full": "reject"},
        {"backend": "TestSerialized", "max_queue_size": 16, "batching_timeout": "0.1ms"},
        {"backend": "TestConcurrent", "instance_num": 2, "max_queue_size": 16},
        {"backend": "TestOnce", "instance_num": 2, "max_queue_size": 8, "batching": "greedy"},
        {
            "first": {"backend": "Identity", "next": "second"},
            "second": {"backend": "S[Identity,TestDedicated]", "max": 4, "max_queue_size": 8},
        },
    ]


@dataclass
class Generation:
    """One pipe, and what became of the requests that were sent to it."""

    config: dict[str, Any]
    pipe: hami.Pipe
    outcomes: Counter[str] = field(default_factory=Counter)
    lock: threading.Lock = field(default_factory=threading.Lock)
    abandoned: bool = False

    def check(self) -> None:
        """Compare the statistics with the outcomes, after the last one."""
        nodes = list(self.pipe.stats().values())
        for node in nodes:
            ended = sum(getattr(node, end) for end in ENDS)
            assert node.submitted == ended + node.waiting + node.running, nodes
            assert self.abandoned or node.waiting == node.running == 0, nodes
        if self.abandoned:
            return
        sent = self.outcomes.total() - self.outcomes["did not start"]
        assert sent - self.outcomes["PipeClosed"] <= nodes[0].submitted <= sent, (self.outcomes, nodes)
        assert nodes[-1].submitted == nodes[0].completed or len(nodes) == 1, nodes
        racing = sum(self.outcomes[name] for name in RACES)
        certain = Counter[str]()
        for name, count in self.outcomes.items():
            certain[COUNTED_AS.get(name, "")] += count
        counted = {end: sum(getattr(node, end) for node in nodes) for end in ENDS} | {"completed": nodes[-1].completed}
        for end in ("completed", "failed", "rejected"):
            assert certain[end] <= counted[end] <= certain[end] + racing, (end, self.outcomes, nodes)
        assert counted["expired"] + counted["cancelled"] <= racing, (self.outcomes, nodes)


class Slot:
    """The place of a pipe that is replaced while requests run."""

    def __init__(self, config: dict[str, Any]) -> None:
        self._config = config
        self.generations: list[Generation] = []
        self.replace()

    @property
    def current(self) -> Generation:
        return self.generations[-1]

    def replace(self) -> None:
        self.generations.append(Generation(self._config, hami.pipe(self._config)))


@dataclass
class Sent:
    """One request on its way."""

    number: int
    what: str
    generation: Generation
    request: dict[Any, Any]
    has_limit: bool = False
    was_cancelled: bool = False
    starts: bool = True
    is_nested: bool = False  # sent by a callback


class Stress:
    def __init__(self) -> None:
        self.slots = [Slot(config) for config in configurations()]
        self.ended = bytearray(REQUESTS)  # how often each request ended
        self.numbers = itertools.count()
        self.problems: list[str] = []
        self.outstanding = 0  # requests whose callback has not run
        self.changed = threading.Condition()
        self.replacements = threading.Semaphore(0)

    # One request

    def prepare(self, chance: random.Random) -> Sent | None:
        """Return the next request, None after the last one."""
        number = next(self.numbers)
        if number >= REQUESTS:
            return None
        if number % REPLACE_EVERY == 0:
            self.replacements.release()
        generation = chance.choice(self.slots).current
        pick = chance.randrange(1000)
        what = "succeeds"
        for fault, share in FAULTS.items():
            if 0 <= pick < share:
                what = fault
            pick -= share
        request: dict[Any, Any] = {"data": (number, what), "kept": number, "priority": chance.choice(PRIORITIES)}
        sent = Sent(number, what, generation, request)
        limit = chance.randrange(1000)
        if what == "runs until it is cancelled":
            limit = limit % 20  # it needs an end
        if limit < 20:
            sent.has_limit = True
            sent.request["timeout"] = chance.choice([0, 0.0001, 0.001, 0.005])
        elif limit < 30:
            sent.request.update(chance.choice(WRONG))
            sent.starts = False
        elif limit < 40:
            sent.request.update(NO_DATA)
        return sent

    def end(self, sent: Sent, error: BaseException | None) -> None:
        """Record the outcome of a request: called once for each."""
        name = "success" if error is None else type(error).__name__
        if problem := self.wrong_outcome(sent, error, name):
            self.problems.append(f"{sent}: {error!r}: {problem}")
        self.ended[sent.number] += 1
        with sent.generation.lock:
            sent.generation.outcomes["did not start" if not sent.starts else name] += 1

    def wrong_outcome(self, sent: Sent, error: BaseException | None, name: str) -> str | None:
        request = sent.request
        if request["data"] != (sent.number, sent.what) or request["kept"] != sent.number:
            return "the request was changed"
        if error is None:
            good = sent.starts and sent.what == "succeeds" and "request_size" not in request
            return None if good and request["result"] == sent.number + 1 else "the result is wrong"
        if "result" in request:
            return "a failed request has a result"
        if not sent.starts:
            may_end = ["RequestError", "DataTypeError", "PipeClosed", *["CancelledError"] * sent.was_cancelled]
            return None if name in may_end else "it was wrong"
        expected = {
            "Fault": sent.what in ("raises", "fails") and error.args == (sent.number,),
            "NoResult": sent.what == "sets no result",
            "RequestError": "request_size" in request,
            "DeadlineExceeded": sent.has_limit,
            "CancelledError": sent.was_cancelled,
            "PipeClosed": sent.generation.pipe.closed,
            "QueueFull": sent.generation.config.get("on_full") == "reject",
            "ReentrantCall": sent.is_nested,
        }
        return None if expected.get(name) else "it cannot end so"

    # How requests are sent

    def call(self, first: Sent, chance: random.Random) -> None:
        try:
            first.generation.pipe(first.request)
        except (hami.Error, Fault) as error:
            self.end(first, error)
        else:
            self.end(first, None)

    def call_list(self, first: Sent, chance: random.Random) -> None:
        sent = [first]
        while len(sent) < chance.randint(1, 8) and (another := self.prepare(chance)):
            another.generation = first.generation
            sent.append(another)
        errors: dict[int, BaseException] = {}
        try:
            first.generation.pipe([one.request for one in sent])
        except hami.BatchError as error:
            errors = dict(error.errors)
        except hami.Error as error:  # of the whole call
            errors = dict.fromkeys(range(len(sent)), error)
            for one in sent:
                one.starts = False
        for index, one in enumerate(sent):
            self.end(one, errors.get(index))

    def submit(self, first: Sent, chance: random.Random) -> None:
        try:
            future = first.generation.pipe.submit(first.request)
        except hami.Error as error:
            first.starts = False
            return self.end(first, error)
        if chance.random() < 0.1:
            first.was_cancelled = True
            if future.cancel() != future.cancelled():
                self.problems.append(f"{first}: cancel() disagrees with cancelled()")
        self.end(first, error_of(future, TIMEOUT))

    def submit_chain(self, first: Sent, chance: random.Random) -> None:
        """Submit with a callback that submits the next one."""
        self.start_link(first, random.Random(chance.random()), links=chance.randint(1, 4))

    def start_link(self, sent: Sent, chance: random.Random, links: int) -> None:
        def completed(future: Future[dict[str, Any]]) -> None:
            try:
                self.end(sent, error_of(future, 0))
                if links > 1 and (another := self.prepare(chance)):
                    another.is_nested = True
                    self.start_link(another, chance, links - 1)
            except BaseException as error:
                self.problems.append(f"{sent}: {error!r} in its callback")
            finally:
                self.count_outstanding(-1)

        self.count_outstanding(1)
        try:
            future = sent.generation.pipe.submit(sent.request)
        except hami.Error as error:
            sent.starts = False
            self.end(sent, error)
            self.count_outstanding(-1)
        else:
            future.add_done_callback(completed)

    def count_outstanding(self, by: int) -> None:
        with self.changed:
            self.outstanding += by
            if self.outstanding == 0:
                self.changed.notify_all()

    def notify_event(self, first: Sent, chance: random.Random, then: Callable[[], None] = lambda: None) -> None:
        """Call with an event, which gets the outcome."""

        def completed(event: hami.Event) -> None:
            self.end(first, event.exception())
            then()
            self.count_outstanding(-1)

        event = first.request["event"] = hami.Event()
        event.add_done_callback(completed)
        self.count_outstanding(1)
        try:
            first.generation.pipe(first.request)
        except hami.Error as error:
            first.starts = False
            event.fail(error)

    async def await_requests(self, chance: random.Random) -> None:
        """Await request after request; some tasks are cancelled while they wait."""
        while sent := self.prepare(chance):
            task = asyncio.ensure_future(sent.generation.pipe.acall(sent.request))
            if chance.random() < 0.1:
                sent.was_cancelled = True
                for _ in range(chance.randint(1, 3)):  # the first one starts the request
                    await asyncio.sleep(0)
                task.cancel()
            try:
                await task
            except asyncio.CancelledError:
                # The request may have ended before the loop resumed the task with its outcome.
                if "result" in sent.request:
                    self.end(sent, None)
                else:
                    self.end(sent, hami.PipeClosed() if sent.generation.pipe.closed else CancelledError())
            except (hami.Error, Fault) as error:
                self.end(sent, error)
            else:
                self.end(sent, None)

    # Threads

    def send(self, seed: int) -> None:
        chance = random.Random(seed)
        ways = [self.call, self.call_list, self.submit, self.submit_chain, self.notify_event]
        while first := self.prepare(chance):
            chance.choice(ways)(first, chance)

    def run_loop(self, seed: int) -> None:
        """Run tasks that await requests."""

        async def main() -> None:
            await asyncio.gather(*(self.await_requests(random.Random(seed * TASKS + task)) for task in range(TASKS)))

        asyncio.run(main())

    def replace_pipes(self, finished: threading.Event) -> None:
        chance = random.Random(0)
        while True:
            self.replacements.acquire()
            if finished.is_set():
                return
            slot, other = chance.sample(self.slots, 2)
            old = slot.current
            slot.replace()
            if chance.random() < 0.3 and (sent := self.prepare(chance)):  # a thread of another pipe closes it too
                sent.generation = other.current
                self.notify_event(sent, chance, then=partial(self.close, old, timeout=0))
            self.close(old, timeout=chance.choice([None, None, None, 0]))

    def close(self, old: Generation, timeout: float | None) -> None:
        # pipe.close() warns of abandoned backends, and several threads cannot catch warnings.
        if old.pipe._core.close(timeout):
            old.abandoned = True

    def run(self) -> None:
        finished = threading.Event()

        def guarded(work: Callable[..., None], *arguments: Any) -> None:
            try:
                work(*arguments)
            except BaseException as error:
                self.problems.append(f"{work.__name__}: {error!r}")
                raise

        works = [(self.run_loop if seed % 8 == 0 else self.send, seed) for seed in range(THREADS)]
        threads = [threading.Thread(target=guarded, args=work, daemon=True) for work in works]
        replacing = threading.Thread(target=guarded, args=(self.replace_pipes, finished), daemon=True)
        deadline = time.monotonic() + LIMIT_S
        for thread in (*threads, replacing):
            thread.start()
        for thread in threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        with self.changed:
            self.changed.wait_for(lambda: self.outstanding == 0, max(0.0, deadline - time.monotonic()))
        finished.set()
        self.replacements.release()
        replacing.join(max(0.0, deadline - time.monotonic()))
        if self.outstanding or any(thread.is_alive() for thread in (*threads, replacing)):
            faulthandler.dump_traceback(all_threads=True)
            raise AssertionError(f"{self.outstanding} callbacks are outstanding; {self.problems[:5]}")
        for slot in self.slots:
            slot.current.pipe.close(None)


def error_of(future: Future[dict[str, Any]], timeout: float) -> BaseException | None:
    try:
        return future.exception(timeout)
    except CancelledError as error:
        return error


def test_every_request_ends_once_while_everything_fails_and_pipes_are_replaced() -> None:
    Runs.counts = bytearray(REQUESTS)
    began = time.monotonic()
    stress = Stress()
    stress.run()
    took = time.monotonic() - began
    generations = [generation for slot in stress.slots for generation in slot.generations]
    total: Counter[str] = sum((generation.outcomes for generation in generations), Counter())
    abandoned = sum(generation.abandoned for generation in generations)
    print(f"\n{REQUESTS} requests, {THREADS} threads, {took:.1f} s, {len(generations)} pipes ({abandoned} abandoned)")
    print(*(f"{name:18}{count:9}" for name, count in total.most_common()), sep="\n")
    assert stress.problems == []
    assert stress.ended.count(1) == REQUESTS
    assert max(Runs.counts) == 1
    for generation in generations:
        generation.check()
    assert {"success", "NoResult", "Fault", "RequestError", "DeadlineExceeded", "CancelledError"} <= set(total)
