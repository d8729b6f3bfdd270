"""Memory, threads and descriptors stay the same, however many requests a process answers and pipes it opens.

python tests/reliability/memory.py --seconds 60
"""

from __future__ import annotations

import contextlib
import threading
import time

import hami
from promise import Clock, Figures, keep, left_over, main, resident_mb

OF_REQUESTS_MB = 5.0  # growth from the first tenth of the requests to the end
OF_PIPES_MB = 10.0
CALLERS = 8
IDS_PER_ROUND = 500
TTL = "20ms"


@hami.register
class PromiseFails(hami.Backend):
    """Cannot be built."""

    def init(self, options: hami.types.DictView) -> None:
        raise RuntimeError("this backend never starts")

    def forward(self, batch: list[hami.Request]) -> None:
        """Never runs."""


@hami.register
class PromiseAddsOne(hami.Backend):
    """A backend in Python with a thread of its own."""

    max = 8

    def forward(self, batch: list[hami.Request]) -> None:
        """Add one."""
        for item in batch:
            item["result"] = item["data"] + 1


@hami.register
class PromiseSums(hami.Backend):
    """Adds to the state of a request."""

    def forward(self, batch: list[hami.Request]) -> None:
        """Add the data of a request to a list of 100 numbers."""
        for item in batch:
            state = item.get("state") or [0] * 100
            state[0] += item["data"]
            item["state"] = state
            item["result"] = state[0]


def requests(seconds: float) -> tuple[int, float]:
    """Return how many requests ran, and the growth in MB after the first tenth of the time."""
    counts = [0] * CALLERS
    with hami.pipe({"backend": "PromiseAddsOne", "instance_num": 2}) as pipe:

        def call(caller: int, clock: Clock) -> None:
            while clock:
                number = counts[caller]
                with contextlib.suppress(hami.DeadlineExceeded):
                    answer = pipe({"data": number}, timeout=1e-5 if number % 50 == 0 else 10.0)
                    keep(answer["result"] == number + 1, f"{number} became {answer['result']}")
                counts[caller] += 1

        def run(time_s: float) -> None:
            clock = Clock(time_s)
            threads = [threading.Thread(target=call, args=(caller, clock)) for caller in range(CALLERS)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()

        run(seconds / 10)
        before = resident_mb()
        run(seconds * 9 / 10)
        return sum(counts), resident_mb() - before


def pipes(seconds: float) -> tuple[int, float]:
    """Open, replace and close pipes, and try to open those that fail; return the rounds and the growth in MB."""
    rounds, before = 0, 0.0
    clock = Clock(seconds)
    while clock or rounds < 20:
        with hami.pipe({"backend": "PromiseAddsOne"}) as pipe:
            pipe({"data": 1})
            pipe.replace({"backend": "S[PromiseAddsOne,PromiseAddsOne]"})
            keep(pipe({"data": 1})["result"] == 3, "a replaced pipe still runs the old pipeline")
            for wrong in ({"backend": "PromiseFails"}, {"backend": "PromiseMissing"}, "S[PromiseAddsOne"):
                try:
                    pipe.replace(wrong)
                except (hami.Error, RuntimeError):
                    continue
                raise AssertionError(f"{wrong} was opened")
        rounds += 1
        if rounds == 10:
            before = resident_mb()
    return rounds, resident_mb() - before


def states(seconds: float) -> tuple[int, float]:
    """Keep states of more and more ids for a short time each; return the ids, and the growth in MB."""
    ids, before = 0, 0.0
    clock = Clock(seconds)
    with hami.pipe({"backend": "StateFul[PromiseSums]", "ttl": TTL}) as pipe:
        while clock or ids < 4 * IDS_PER_ROUND:
            for number in range(ids, ids + IDS_PER_ROUND):
                keep(pipe({"data": 1, "req_id": number})["result"] == 1, f"the id {number} has the state of another")
            ids += IDS_PER_ROUND
            if ids == 2 * IDS_PER_ROUND:
                before = resident_mb()
    return ids, resident_mb() - before


def run(seconds: float, strict: bool) -> Figures:
    """Try each kind, and compare the threads and descriptors of the process before and after."""
    pipes(0)  # imports, and what is made once
    before = left_over()
    answered, by_requests = requests(seconds / 2)
    opened, by_pipes = pipes(seconds / 4)
    ids, by_states = states(seconds / 4)
    deadline = time.monotonic() + 10
    while left_over()[0] > before[0] and time.monotonic() < deadline:
        time.sleep(0.001)  # a thread that ends needs a moment
    after = left_over()
    keep(after == before, f"threads and descriptors: {before} before, {after} after")
    keep(by_requests <= OF_REQUESTS_MB, f"{answered} requests: + {by_requests:.1f} MB, promised {OF_REQUESTS_MB}")
    keep(by_pipes <= OF_PIPES_MB, f"{opened} pipes: + {by_pipes:.1f} MB, promised {OF_PIPES_MB}")
    keep(by_states <= OF_REQUESTS_MB, f"{ids} states: + {by_states:.1f} MB, promised {OF_REQUESTS_MB}")
    return {
        "requests": answered,
        "MB of requests": round(by_requests, 1),
        "pipes": opened,
        "MB of pipes": round(by_pipes, 1),
        "ids of states": ids,
        "MB of states": round(by_states, 1),
        "threads left": after[0] - before[0],
        "descriptors left": after[1] - before[1],
    }


if __name__ == "__main__":
    main(run, "memory, threads and descriptors stay the same")
