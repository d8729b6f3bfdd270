"""Ctrl-C where a caller waits: for a result, for capacity in a queue, in its own batch, while a pipe is built."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
import weakref
from typing import Any

import hami
import pytest
from running import TIMEOUT, backend, check_clean, run_script, slow, threads_end, threads_of_process


@pytest.mark.parametrize("entry", ["Forward[node.default]", "S[Forward[node.default],Identity]"])
@pytest.mark.parametrize("call", ["{'data': 1}", "[{'data': 1}, {'data': 2}]", "{'data': 1}, timeout=99"])
def test_ctrl_c_ends_a_waiting_call_within_two_seconds(entry: str, call: str) -> None:
    script = f"""
        pipe = hami.pipe({{"default": {{"backend": "Slow"}}, "entrypoint": "{entry}"}})
        threading.Thread(target=lambda: (started.wait(), print("waiting", flush=True))).start()
        try:
            pipe({call})
        except KeyboardInterrupt:
            print(time.monotonic_ns(), flush=True)
        pipe.close(0)
    """
    process = subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", slow(3600, script)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "waiting\n"
    sent = time.monotonic_ns()
    process.send_signal(signal.SIGINT)
    raised = int(process.stdout.readline())
    assert process.wait(TIMEOUT) == 0
    process.stdout.close()
    assert (raised - sent) / 1e9 < 2.0  # 0.1 s on an idle machine


@pytest.mark.parametrize(
    "call",
    [
        "pipe({'data': 3})",
        "pipe([{'data': 3}, {'data': 4}])",
        "pipe.submit({'data': 3})",
        "pipe({'data': 3, 'event': hami.Event()})",
        "list(pipe.map([{'data': 3}, {'data': 4}]))",
    ],
)
def test_ctrl_c_ends_a_call_that_waits_for_capacity(call: str) -> None:
    script = f"""
        pipe = hami.pipe({{"backend": "Slow", "max_queue_size": 1}})
        pipe.submit({{"data": 1}})
        started.wait()
        pipe.submit({{"data": 2}})
        try:
            print("waiting", flush=True)
            {call}
        except KeyboardInterrupt:
            print("interrupted", flush=True)
        pipe.close(0)
    """
    process = subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", slow(3600, script)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "waiting\n"
    process.send_signal(signal.SIGINT)
    assert process.stdout.readline() == "interrupted\n"
    assert process.wait(TIMEOUT) == 0
    process.stdout.close()


@pytest.mark.parametrize("timeout", ["None", "3600"])
def test_ctrl_c_ends_a_waiting_close(timeout: str) -> None:
    note = 'in close of Slow of node "default", which still runs'
    script = f"""
        pipe = hami.pipe("Slow")
        future = pipe.submit({{"data": 1}})
        started.wait()

        def interrupt():
            while not pipe.closed:
                time.sleep(0.0005)
            os.kill(os.getpid(), signal.SIGINT)

        import os, signal
        threading.Thread(target=interrupt).start()
        try:
            pipe.close({timeout})
        except KeyboardInterrupt as error:
            print(type(future.exception()).__name__, *getattr(error, "__notes__", [{note!r}]), sep="; ")
        pipe.close()
    """
    check_clean(run_script(slow(3600, script)), f"PipeClosed; {note}")


def test_after_ctrl_c_during_init_no_further_instance_is_initialised() -> None:
    calls: list[str] = []
    closed = threading.Event()

    class Interrupted(hami.Backend):
        def init(self, options: Any) -> None:
            calls.append("init")
            signal.raise_signal(signal.SIGINT)  # handled by the main thread, which waits for this one

        def forward(self, batch: list[Any]) -> None: ...

        def close(self) -> None:
            calls.append("close")
            closed.set()

    hami.register("TestInterrupted")(Interrupted)
    with pytest.raises(KeyboardInterrupt):
        hami.pipe({"backend": "TestInterrupted", "instance_num": 3})
    assert closed.wait(TIMEOUT)
    assert calls == ["init", "close"]


@pytest.mark.parametrize("expression", ["TestHeldUp", "S[Identity,TestHeldUp]"])
@pytest.mark.parametrize("fails", [False, True])
def test_ctrl_c_does_not_wait_for_init_and_the_backend_is_closed_afterwards(expression: str, fails: bool) -> None:
    before = threads_of_process()
    may_continue = threading.Event()
    closed: list[int] = []
    made: list[weakref.ref[Any]] = []

    class HeldUp(hami.Backend):
        def init(self, options: Any) -> None:
            made.append(weakref.ref(self))
            self.number = options["instance"]
            if self.number == 1:
                signal.raise_signal(signal.SIGINT)
                assert may_continue.wait(TIMEOUT)
                assert "init_event" in options  # its options are still valid
                if fails:
                    raise ValueError("too late")

        def forward(self, batch: list[Any]) -> None: ...

        def close(self) -> None:
            closed.append(self.number)

    hami.register("TestHeldUp")(HeldUp)
    with pytest.raises(KeyboardInterrupt) as raised:
        hami.pipe({"backend": expression, "instance_num": 3})
    if sys.version_info >= (3, 11):
        assert raised.value.__notes__ == [
            'in init of TestHeldUp, which continues and is closed when it ends, node "default"'
            if expression == "TestHeldUp"
            else 'in init of S, which continues and is closed when it ends, node "default"'
        ]
    assert closed == []
    del raised
    may_continue.set()
    assert threads_end(before)
    assert closed == ([0] if fails else [1, 0])
    assert [each() for each in made] == [None, None]


LEAVES = """
    import signal, sys, threading, time
    import hami

    class Slow(hami.Backend):
        def init(self, options):
            signal.raise_signal(signal.SIGINT)
            if not left.wait(60):
                return
            print("goes on", flush=True)
            while not hami._runtime.at_exit._exiting:
                pass
            HERE

        def forward(self, batch): ...

        def close(self):
            print("closed", flush=True)

    left = threading.Event()
    hami.register("Slow")(Slow)
    try:
        hami.pipe("Slow")
    except KeyboardInterrupt:
        print("interrupted", flush=True)
    left.set()
"""


def test_program_exit_waits_for_an_init_that_still_runs() -> None:
    check_clean(run_script(LEAVES.replace("HERE", "")), "interrupted", "goes on", "closed")


@pytest.mark.parametrize("stuck", ["time.sleep(3600)", "threading.Event().wait()", "exec('while True: pass')"])
def test_a_second_ctrl_c_ends_the_program_while_init_is_stuck(stuck: str) -> None:
    done = run_script(LEAVES.replace("HERE", f"signal.raise_signal(signal.SIGINT); {stuck}"))
    assert (done.returncode, done.stdout) == (0, "interrupted\ngoes on\n")


def test_ctrl_c_in_a_batch_on_the_thread_of_the_caller_raises_in_the_caller() -> None:
    def interrupt(batch: list[Any]) -> None:
        raise KeyboardInterrupt

    backend(interrupt, "TestInterrupts", thread="serialized", max=2)
    with hami.pipe("TestInterrupts") as pipe, pytest.raises(KeyboardInterrupt):
        pipe([{"data": 1}, {"data": 2}])
