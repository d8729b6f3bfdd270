"""Pipes that close, programs that end and Ctrl-C, all while requests run.

python tests/reliability/ends.py --seconds 60 --strict
"""

from __future__ import annotations

import itertools
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import CancelledError, Future

import hami
from promise import Clock, Figures, keep, main

RUN_S = 0.02  # one call of the backend
CLOSE_S = 1.0  # a pending request ends within this and the longest running call
CTRL_C_S = 0.1
CALLERS = 16

PROGRAM = """
import asyncio, itertools, signal, sys, threading, time
import hami

@hami.register
class Waits(hami.Backend):
    max = 4
    def forward(self, batch):
        for _ in range(20):
            time.sleep(0.001)
        for item in batch:
            item["result"] = 1

@hami.register
class Streams(hami.Backend):
    def forward(self, batch):
        for item in batch:
            item["result"] = 1
        yield from itertools.repeat(None, 1 << 40)

def keep_calling(pipe):
    while True:
        try:
            pipe({"data": 1})
        except hami.Error:
            return

def callers(pipe):
    for _ in range(4):
        threading.Thread(target=keep_calling, args=(pipe,), daemon=True).start()
    pipe({"data": 1})

def more(count):
    return [{"data": 1} for _ in range(count)]

def say_when_it_waits():
    # The main thread is then in the call that follows, or a few instructions before it.
    threading.Timer(0.02, lambda: print("waits", flush=True)).start()
"""
# How a program ends.
EXITS = {
    "with calls of daemon threads": 'pipe = hami.pipe("Waits"); callers(pipe)',
    "in a block, with futures": 'with hami.pipe("Waits") as pipe: [pipe.submit({"data": 1}) for _ in range(50)]',
    "with futures and callbacks": """
pipe = hami.pipe("Waits")
for _ in range(50):
    pipe.submit({"data": 1}).add_done_callback(lambda future: future.exception())
""",
    "by sys.exit": 'pipe = hami.pipe("Waits"); callers(pipe); sys.exit(0)',
    "in an event loop": """
async def main():
    tasks = [asyncio.ensure_future(hami.pipe("Waits").acall({"data": 1})) for _ in range(8)]
    await asyncio.sleep(0)
asyncio.run(main())
""",
}
# Where a caller waits when Ctrl-C comes; 200 requests are in front of it, and `more` makes others.
WAITS = {
    "call": 'pipe({"data": 1})',
    "call with a list": "pipe(more(8))",
    "future": 'pipe.submit({"data": 1}).result()',
    "event": 'event = hami.Event(); pipe({"data": 1, "event": event}); event.wait()',
    "map": "list(pipe.map(more(8)))",
    "event loop": 'asyncio.run(pipe.acall({"data": 1}))',
    "close": "pipe.close()",
}


@hami.register
class PromiseWaits(hami.Backend):
    """Takes 20 ms for up to four requests."""

    max = 4

    def forward(self, batch: list[hami.Request]) -> None:
        """Wait, without the GIL."""
        time.sleep(RUN_S)
        for item in batch:
            item["result"] = item["data"]


def close_under_load() -> tuple[int, float]:
    """Close a pipe that has callers of each kind; return the requests, and the seconds until the last one ended."""
    pipe = hami.pipe({"backend": "PromiseWaits", "instance_num": 2})
    ended: list[float] = []
    problems: list[str] = []
    lock = threading.Lock()
    full = threading.Semaphore(0)

    def end(future: Future[dict[str, int]], number: int) -> None:
        try:
            answer = future.result(0)["result"]
            problem = "" if answer == number else f"{number} became {answer}"
        except (hami.PipeClosed, CancelledError):
            problem = ""
        except BaseException as error:
            problem = repr(error)
        with lock:
            ended.append(time.monotonic())
            problems.extend(filter(None, [problem]))

    def send() -> None:
        for number in itertools.count():
            if number == 20:
                full.release()
            try:
                future = pipe.submit({"data": number})
            except hami.PipeClosed:
                return
            future.add_done_callback(lambda future, number=number: end(future, number))
            with lock:
                sent.append(number)
            if number % 4 == 3:
                future.exception(30)

    sent: list[int] = []
    threads = [threading.Thread(target=send) for _ in range(CALLERS)]
    for thread in threads:
        thread.start()
    for _ in threads:
        full.acquire()
    began = time.monotonic()
    pipe.close(0.5)
    for thread in threads:
        thread.join(30)
    keep(not any(thread.is_alive() for thread in threads), "a caller still waits 30 s after the close")
    keep(len(ended) == len(sent), f"{len(sent)} requests were sent, {len(ended)} ended")
    keep(not problems, "; ".join(problems[:3]))
    return len(sent), max(ended) - began


def exits(kind: str) -> None:
    """Run a program that ends while requests run."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM + EXITS[kind]], capture_output=True, text=True, timeout=60, check=False
    )
    keep((done.returncode, done.stderr) == (0, ""), f"a program {kind}: status {done.returncode}: {done.stderr[-800:]}")


def interrupted(kind: str) -> float:
    """Send SIGINT to a program whose main thread waits; return the seconds until it has raised."""
    program = f"""{PROGRAM}
pipe = hami.pipe("Waits")
for request in more(200):
    pipe.submit(request)
say_when_it_waits()
try:
    {WAITS[kind]}
except KeyboardInterrupt:
    print(time.monotonic_ns(), flush=True)
pipe.close(0)
"""
    with subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        keep(process.stdout.readline() == "waits\n", f"{kind}: the program did not start")
        sent = time.monotonic_ns()
        process.send_signal(signal.SIGINT)
        line = process.stdout.readline()
        keep(bool(line), f"Ctrl-C in {kind}: not raised: {process.stderr.read()[-800:]}")
        status = process.wait(60)
        keep(status == 0, f"Ctrl-C in {kind}: status {status}: {process.stderr.read()[-800:]}")
        return (int(line) - sent) / 1e9


def run(seconds: float, strict: bool) -> Figures:
    """Try each kind of end alternately, and at least once."""
    clock = Clock(seconds)
    closed = requests = ended = 0
    longest = 0.0
    raised = dict.fromkeys(WAITS, 0.0)
    kinds, waits = itertools.cycle(EXITS), itertools.cycle(WAITS)
    while clock or ended < len(EXITS) or closed < 1 or ended < len(WAITS):
        sent, took = close_under_load()
        closed, requests, longest = closed + 1, requests + sent, max(longest, took)
        for _ in range(4):
            exits(next(kinds))
            ended += 1
        for kind in itertools.islice(waits, 4):
            raised[kind] = max(raised[kind], interrupted(kind))
    slowest = max(raised, key=lambda kind: raised[kind])
    if strict:
        keep(longest <= CLOSE_S + RUN_S, f"a request ended {longest:.2f} s after close(0.5)")
        keep(raised[slowest] <= CTRL_C_S, f"Ctrl-C in {slowest}: {raised[slowest]:.3f} s")
    return {
        "closes under load": closed,
        "requests": requests,
        "s until the last one ended": round(longest, 3),
        "ends of programs": ended,
        "ms until Ctrl-C is raised": round(raised[slowest] * 1e3),
        "slowest": slowest,
    }


if __name__ == "__main__":
    main(run, "each request ends when its pipe closes, a program ends, or Ctrl-C is pressed")
