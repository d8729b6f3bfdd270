"""A process forks at random moments while its threads call pipes, and its children use pipes of their own.

python tests/reliability/forks.py --seconds 60
"""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
import threading
import time
import warnings

import hami
from promise import Clock, Figures, keep, main

CALLERS = 8
CHILD_S = 30
REFUSED = "this pipe was made before the process forked; make a new one in the child"


@hami.register
class PromiseDoubles(hami.Backend):
    """Doubles data."""

    max = 8

    def forward(self, batch: list[hami.Request]) -> None:
        """Double each number."""
        for item in batch:
            item["result"] = 2 * item["data"]


def answer(number: int) -> int:
    """Return what a new pipe of this process answers."""
    with hami.pipe({"backend": "PromiseDoubles"}) as pipe:
        return int(pipe({"data": number})["result"])


def child(pipe: hami.Pipe) -> int:
    """Use the pipe of the parent, which refuses, and a new one; return the exit status."""
    signal.alarm(CHILD_S)  # a child that hangs ends with a status of its own
    try:
        pipe({"data": 1})
    except hami.Error as error:
        if str(error) != REFUSED:
            return 2
    else:
        return 3
    return 0 if answer(21) == 42 else 4


def forks(seconds: float) -> tuple[int, int]:
    """Fork while callers call; return the forks and the requests."""
    counts = [0] * CALLERS
    problems: list[str] = []
    stop = threading.Event()
    chance = random.Random(1)
    with hami.pipe({"backend": "PromiseDoubles", "instance_num": 2}) as pipe:

        def call(caller: int) -> None:
            while not stop.is_set():
                number = counts[caller]
                found = (
                    pipe({"data": number})["result"] if caller % 2 else pipe.submit({"data": number}).result()["result"]
                )
                if found != 2 * number:
                    problems.append(f"{number} became {found}")
                counts[caller] += 1

        # The first call of each kind imports modules, and a child never finishes what its parent was importing.
        pipe.submit(pipe({"data": 1})).result()
        threads = [threading.Thread(target=call, args=(caller,)) for caller in range(CALLERS)]
        for thread in threads:
            thread.start()
        made, clock = 0, Clock(seconds)
        while clock or made < 3:
            time.sleep(chance.random() / 1e3)
            pid = os.fork()
            if pid == 0:
                os._exit(child(pipe))
            status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
            made += 1
            keep(status == 0, f"child {made} ended with {status}")
        stop.set()
        for thread in threads:
            thread.join()
    keep(not problems, "; ".join(problems[:3]))
    return made, sum(counts)


def pools() -> int:
    """Use pipes in the processes of multiprocessing, however it starts them; return the processes."""
    for method in ("fork", "spawn", "forkserver"):
        with multiprocessing.get_context(method).Pool(2) as pool:
            found = pool.map(answer, range(8))
        keep(found == [2 * number for number in range(8)], f"multiprocessing with {method}: {found}")
    return 6


def run(seconds: float, strict: bool) -> Figures:
    """Fork, then start processes in each way."""
    warnings.simplefilter("ignore", DeprecationWarning)  # of a fork beside threads
    made, requests = forks(seconds)
    return {"forks": made, "requests of the parent": requests, "processes of multiprocessing": pools()}


if __name__ == "__main__":
    main(run, "a process may fork at any moment")
