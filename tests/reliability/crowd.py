"""A thousand callers in a closed loop, ten times what the model can do: a full queue rejects at once and stays bounded.

python tests/reliability/crowd.py --seconds 60

Each caller is a thread that sends its next request as soon as the last one is answered, and a moment after a
rejection. The time of a rejection is the processor time of its caller: a thousand threads wait for each other.
"""

from __future__ import annotations

import random
import statistics
import threading
import time
from array import array

import hami
from promise import Clock, Figures, keep, main, resident_mb

CALLERS, QUEUE, BATCH = 1000, 64, 4
RUN_S = 0.02  # of a batch
PAUSE_S = (0.1, 2.0)  # after a rejection
KEPT = 50  # times of rejections for each caller, so that what is measured does not grow
REJECTION_MS, RECOVERY_S, GROWTH_MB = 1.0, 1.0, 20.0


@hami.register
class PromiseTakes20ms(hami.Backend):
    """A model that takes 20 ms for up to four requests."""

    max = BATCH

    def forward(self, batch: list[hami.Request]) -> None:
        """Wait, without the GIL."""
        time.sleep(RUN_S)
        for item in batch:
            item["result"] = item["data"] + 1


class Sample:
    """Some of all values, each as likely as any other."""

    def __init__(self) -> None:
        self.count, self.kept = 0, array("d")

    def add(self, value: float) -> None:
        """Keep the value, or one that was kept before."""
        self.count += 1
        if len(self.kept) < KEPT:
            self.kept.append(value)
        elif (place := random.randrange(self.count)) < KEPT:
            self.kept[place] = value


class Crowd:
    """Callers of a pipe, and what became of their requests."""

    def __init__(self, pipe: hami.Pipe, clock: Clock) -> None:
        self.answers = [0] * CALLERS
        self.rejections = [Sample() for _ in range(CALLERS)]  # ms of processor time
        self.waiting = [0]  # in the queue: at the start, and each tenth of a second
        self._pipe, self._clock = pipe, clock

    def call(self, caller: int) -> None:
        """Send one request after the other, until the time is over."""
        chance = random.Random(caller)
        while self._clock or not self.answers[caller] + self.rejections[caller].count:
            began = time.thread_time()
            try:
                answer = self._pipe({"data": caller})["result"]
            except hami.QueueFull:
                self.rejections[caller].add((time.thread_time() - began) * 1e3)
                time.sleep(chance.uniform(*PAUSE_S) if self._clock else 0)
            else:
                keep(answer == caller + 1, f"{caller} became {answer}")
                self.answers[caller] += 1

    def run(self) -> None:
        """Let all of them call, and look at the queue meanwhile."""
        threads = [threading.Thread(target=self.call, args=(caller,)) for caller in range(CALLERS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            while thread.is_alive():
                thread.join(0.1)
                self.waiting += (node.waiting for node in self._pipe.stats().values())


def run(seconds: float, strict: bool) -> Figures:
    """Overload a pipe, and ask again when the callers are gone."""
    config = {"backend": "PromiseTakes20ms", "max_queue_size": QUEUE, "on_full": "reject"}
    with hami.pipe(config) as pipe:
        Crowd(pipe, Clock(0)).run()  # the stacks of the threads, and what is made once
        before = resident_mb()
        crowd, began = Crowd(pipe, Clock(seconds)), time.monotonic()
        crowd.run()
        took = time.monotonic() - began
        growth = resident_mb() - before
        again = time.monotonic()
        keep(pipe({"data": 1})["result"] == 2, "after the overload, an answer is wrong")
        recovery = time.monotonic() - again
    answers, rejections = sum(crowd.answers), sum(each.count for each in crowd.rejections)
    keep(bool(answers and rejections), f"{answers} answers, {rejections} rejections: the pipe was not overloaded")
    times = sorted(ms for each in crowd.rejections for ms in each.kept)
    median, high = (times[int(len(times) * part)] for part in (0.5, 0.99))
    # A request that is being rejected counts as waiting for a moment, so a single figure may be above the bound.
    usual = statistics.median(crowd.waiting)
    keep(usual <= QUEUE + BATCH, f"{usual} requests waited in a queue of {QUEUE}")
    keep(growth <= GROWTH_MB, f"{answers + rejections} requests: + {growth:.1f} MB, promised {GROWTH_MB}")
    if strict:
        keep(high <= REJECTION_MS, f"p99 of a rejection: {high:.2f} ms, promised {REJECTION_MS}")
        keep(recovery <= RECOVERY_S, f"the first answer afterwards took {recovery:.2f} s, promised {RECOVERY_S}")
    return {
        "callers": CALLERS,
        "answers/s": round(answers / took, 1),
        "of": round(BATCH / RUN_S),
        "rejections": rejections,
        "ms of a rejection": round(median, 3),
        "p99": round(high, 3),
        "usually waiting": usual,
        "MB": round(growth, 1),
        "ms until an answer afterwards": round(recovery * 1e3),
    }


if __name__ == "__main__":
    main(run, "a full queue rejects at once and stays bounded")
