"""Measure the overhead of a call, compared with a Python function and with a hand-off by queue.Queue and Event.

    python tests/bench/call_overhead.py [ROUNDS] [CALLS]

One Python thread calls, on an otherwise idle machine. Each call is timed separately. The contender "nothing" measures
reading the clock.
"""

from __future__ import annotations

import queue
import sys
import threading
from collections.abc import Callable
from typing import Any

import hami
from _measure import about_hami, about_this_machine, alternate, show


class Echo(hami.Backend):
    def forward(self, batch: list[Any]) -> None:
        for item in batch:
            item["result"] = item["data"]


class EchoInline(Echo):
    thread = "serialized"


def echo(request: dict[str, Any]) -> dict[str, Any]:
    request["result"] = request["data"]
    return request


def start_hand_off() -> Callable[[dict[str, Any]], dict[str, Any]]:
    """Start a thread that runs `echo` for each request of a queue."""
    requests: queue.Queue[tuple[dict[str, Any], threading.Event]] = queue.Queue()

    def work() -> None:
        while True:
            request, done = requests.get()
            echo(request)
            done.set()

    def call(request: dict[str, Any]) -> dict[str, Any]:
        done = threading.Event()
        requests.put((request, done))
        done.wait()
        return request

    threading.Thread(target=work, daemon=True).start()
    return call


def main() -> None:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 7
    calls = int(sys.argv[2]) if len(sys.argv) > 2 else 5000
    hami.register(Echo)
    hami.register(EchoInline)
    hand_off = start_hand_off()
    with hami.pipe("Identity") as identity, hami.pipe("EchoInline") as inline, hami.pipe("Echo") as worker:
        contenders: dict[str, Callable[[], object]] = {
            "nothing": lambda: {"data": 1},
            "a Python function": lambda: echo({"data": 1}),
            "Identity": lambda: identity({"data": 1}),
            "Identity, submit and result": lambda: identity.submit({"data": 1}).result(),
            "Python backend, caller's thread": lambda: inline({"data": 1}),
            "Python backend, dedicated thread": lambda: worker({"data": 1}),
            "queue.Queue and Event": lambda: hand_off({"data": 1}),
        }
        timed = alternate(contenders, rounds, calls)
    print(f"{about_this_machine()}; {about_hami()}; {rounds} rounds of {calls} calls each")
    show(timed, "a Python function")
    print()
    handed_off = ("Python backend, dedicated thread", "queue.Queue and Event")
    show({name: timed[name] for name in handed_off}, "queue.Queue and Event")


if __name__ == "__main__":
    main()
