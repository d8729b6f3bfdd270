"""The interpreter exits while pipes are open, threads wait and backends run: no output, no hang, no abort."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest
from running import TIMEOUT, check_clean, run_script, slow


def test_requests_in_flight_complete_when_the_interpreter_exits() -> None:
    script = """
        pipe = hami.pipe("Slow")
        future = pipe.submit({"data": 1})
        future.add_done_callback(lambda one: print(one.result()["result"], flush=True))
        pipe.submit({"data": 2})
        started.wait()
    """
    check_clean(run_script(slow(0.2, script)), "done", "closed")


def test_the_interpreter_exits_even_if_a_backend_does_not_return() -> None:
    script = """
        import atexit
        pipe = hami.pipe("Slow")
        pipe.submit({"data": 1})
        started.wait()
        atexit.register(pipe.close, 0)
    """
    done = run_script(slow(3600, script))
    assert done.returncode == 0
    shown = re.search(r"these backends did not return within (.*) s and were abandoned: Slow of node", done.stderr)
    assert shown
    assert float(shown[1]) >= 1
    assert done.stdout == ""


def test_pipes_that_hang_share_the_time_that_the_exit_waits() -> None:
    script = """
        import hami._runtime.at_exit
        hami._runtime.at_exit.GRACE_PERIOD_S = 0.1
        import warnings
        pipes = [hami.pipe("Slow") for _ in range(3)]
        for pipe in pipes:
            pipe.submit({"data": 1})
        warnings.showwarning = lambda message, *_: print(message, flush=True)
    """
    done = run_script(slow(3600, script))
    assert done.returncode == 0
    (line,) = done.stdout.splitlines()
    assert re.fullmatch(
        r"these backends did not return within [1-9].* s and were abandoned: (Slow of node [^,]*(, |$)){3}", line
    )


def test_ctrl_c_during_exit_closes_all_pipes_immediately() -> None:
    script = """
        pipes = [hami.pipe("Slow"), hami.pipe("Slow")]
        for pipe in pipes:
            pipe.submit({"data": 1})

        def interrupt():
            while not any(pipe.closed for pipe in pipes):
                time.sleep(0.0005)
            os.kill(os.getpid(), signal.SIGINT)
            while not all(pipe.closed for pipe in pipes):
                time.sleep(0.0005)
            print("both", flush=True)

        import os, signal
        threading.Thread(target=interrupt, daemon=True).start()
    """
    done = run_script(slow(3600, script))
    assert (done.returncode, done.stdout) == (0, "both\n")
    assert "KeyboardInterrupt" not in done.stderr


def test_the_interpreter_exits_while_daemon_threads_wait_for_requests() -> None:
    script = """
        pipe = hami.pipe({"backend": "Slow", "instance_num": 2})
        def call():
            while True:
                try:
                    pipe({"data": 1})
                except hami.PipeClosed:
                    pass
        for _ in range(8):
            threading.Thread(target=call, daemon=True).start()
        started.wait()
    """
    for _ in range(5):
        check_clean(run_script(slow(0.001, script)), "closed", "closed")


def test_daemon_threads_that_catch_nothing_neither_print_nor_abort_at_exit() -> None:
    script = """
        import asyncio
        pipe = hami.pipe({"backend": "Slow", "instance_num": 2})
        def call():
            while True:
                pipe({"data": 1})
        def call_with_lists():
            while True:
                pipe([{"data": 1}, {"data": 2}])
        async def task():
            while True:
                await pipe.acall({"data": 1})
        for _ in range(4):
            threading.Thread(target=call, daemon=True).start()
            threading.Thread(target=call_with_lists, daemon=True).start()
            threading.Thread(target=lambda: asyncio.run(task()), daemon=True).start()
        started.wait()
    """
    for _ in range(5):
        check_clean(run_script(slow(0.001, script)), "closed", "closed")


@pytest.mark.parametrize("thread", ["dedicated", "serialized"])
def test_a_backend_may_return_while_the_interpreter_finalizes(thread: str) -> None:
    """CPython before 3.14 then ends the thread of the backend; the rest of the process must not be affected."""
    script = f"""
        import atexit
        class Back(hami.Backend):
            thread = "{thread}"
            def forward(self, batch):
                started.set()
                select.select([gate], [], [])
                for item in batch:
                    item["result"] = threading.current_thread().name

        import os, select
        gate, go = os.pipe()
        hami.register(Back)
        pipe = hami.pipe("Back")
        threading.Thread(target=lambda: pipe({{"data": 1}}), daemon=True).start()
        started.wait()
        atexit.register(pipe.close, 0)

        class Last:
            def __del__(self, write=os.write, wait=select.select):
                write(go, b"x")
                wait([], [], [], 0.3)
        sys.last = Last()
    """
    done = run_script(slow(0, script))
    assert done.returncode == 0
    assert "were abandoned: Back of node" in done.stderr
    assert "Error" not in done.stderr
    assert "terminate" not in done.stderr


def test_a_backend_that_calls_a_closed_pipe_does_not_delay_exit() -> None:
    script = """
        class Calls(hami.Backend):
            def forward(self, batch):
                started.set()
                while not other.closed:
                    time.sleep(0.0005)
                for _ in range(3):
                    try:
                        other({"data": 1})
                    except hami.PipeClosed:
                        print("other is closed", flush=True)

        hami.register(Calls)
        other = hami.pipe("Identity")
        pipe = hami.pipe("Calls")
        pipe.submit({"data": 1})
        started.wait()
        import hami._runtime.at_exit
        hami._runtime.at_exit._open_pipes = [other, pipe]
    """
    check_clean(run_script(slow(0, script)), *["other is closed"] * 3)


def test_the_interpreter_exits_with_a_pipe_in_a_reference_cycle() -> None:
    script = """
        class Holder: pass
        holder = Holder()
        holder.self = holder
        holder.pipe = hami.pipe("Slow")
        print(holder.pipe({"data": 1})["result"])
    """
    check_clean(run_script(slow(0, script)), "done", "closed")


def test_close_at_exit_continues_where_warnings_are_errors() -> None:
    script = """
        stuck = hami.pipe("Slow")
        stuck.submit({"data": 1})
        started.wait()
        other = hami.pipe("Slow")
        close = hami.Pipe.close
        hami.Pipe.close = lambda self, timeout: close(self, 0)
    """
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", slow(3600, script)], capture_output=True, text=True, timeout=TIMEOUT
    )
    assert done.returncode == 0
    assert done.stdout == "closed\n"
