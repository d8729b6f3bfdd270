"""How long does a call of a pipe take, against a Python function and against a hand-off by queue.Queue and Event?

    python tests/bench/how_long_does_a_call_take.py [ROUNDS] [CALLS]

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


class EchoHere(Echo):
    thread = "serialized"


def echo(request: dict[str, Any]) -> dict[str, Any]:
    request["result"] = request["data"]
    return request


def start_hand_off() -> Callable[[dict[str, Any]], dict[str, Any]]:
    """Start a thread that runs `echo` for each request of a queue."""
    asked: queue.Queue[tuple[dict[str, Any], threading.Event]] = queue.Queue()

    def work() -> None:
        while True:
            request, done = asked.get()
            echo(request)
            done.set()

    def ask(request: dict[str, Any]) -> dict[str, Any]:
        done = threading.Event()
        asked.put((request, done))
        done.wait()
        return request

    threading.Thread(target=work, daemon=True).start()
    return ask


def main() -> None:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 7
    calls = int(sys.argv[2]) if len(sys.argv) > 2 else 5000
    hami.register(Echo)
    hami.register(EchoHere)
    hand_off = start_hand_off()
    with hami.pipe("Identity") as identity, hami.pipe("EchoHere") as here, hami.pipe("Echo") as worker:
        contenders: dict[str, Callable[[], object]] = {
            "nothing": lambda: {"data": 1},
            "a Python function": lambda: echo({"data": 1}),
            "Identity": lambda: identity({"data": 1}),
            "Identity, submit and result": lambda: identity.submit({"data": 1}).result(),
            "Python backend, caller's thread": lambda: here({"data": 1}),
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
