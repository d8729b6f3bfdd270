"""Processes that fork: pipes of the parent in the child, and child processes that a backend forks."""

from __future__ import annotations

import pytest
from running import check_clean, run_script, slow

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


def test_a_pipe_made_before_a_fork_raises_in_the_child_and_a_new_pipe_works() -> None:
    script = """
        import os, warnings
        warnings.simplefilter("ignore")
        pipe = hami.pipe("Slow")
        pipe({"data": 1})
        pipe.submit({"data": 1}).result()
        child = os.fork()
        if child == 0:
            for call in (pipe, pipe.submit):
                try:
                    call({"data": 1})
                except hami.Error as error:
                    print(error, flush=True)
            with hami.pipe("Slow") as new:
                print(new({"data": 1})["result"], flush=True)
            sys.exit(0)
        print("child:", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), pipe({"data": 1})["result"], flush=True)
    """
    refused = "this pipe was made before the process forked; make a new one in the child"
    check_clean(run_script(slow(0, script)), refused, refused, "done", "closed", "child: 0 done", "closed")


def test_a_stream_begun_before_a_fork_raises_in_the_child() -> None:
    script = """
        import os, warnings
        warnings.simplefilter("ignore")

        @hami.register
        class Counts(hami.Backend):
            def forward(self, batch):
                for number in range(1000):
                    opened.wait()
                    yield number

        opened = threading.Event()
        with hami.pipe("Counts") as pipe:
            stream = pipe.stream({"data": 1})
            opened.set()
            print(next(stream), flush=True)  # else the child prints it again
            opened.clear()
            child = os.fork()
            if child == 0:
                try:
                    print(list(stream))
                except hami.Error as error:
                    print(error, flush=True)
                os._exit(0)
            status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
            opened.set()
            print("child:", status, list(stream)[-1], flush=True)
    """
    refused = "this stream was begun before the process forked; begin a new one in the child"
    check_clean(run_script(slow(0, script)), "0", refused, "child: 0 999")


@pytest.mark.parametrize(
    ("child", "status", "message"),
    [
        ("print('child', flush=True)", 0, ""),
        ("sys.exit(5)", 5, ""),
        ("sys.exit()", 0, ""),
        ("sys.exit('enough')", 1, "enough\n"),
        ("raise ValueError('gone wrong')", 1, "ValueError: gone wrong\n"),
        ("pipe({'data': 1})", 1, "this pipe was made before the process forked; make a new one in the child\n"),
    ],
)
def test_a_child_process_that_a_backend_forks_ends_when_its_forward_returns(
    child: str, status: int, message: str
) -> None:
    script = f"""
        import os, sys, warnings
        import hami
        warnings.simplefilter("ignore")

        @hami.register
        class Forks(hami.Backend):
            def forward(self, batch):
                if (pid := os.fork()) == 0:
                    {child}
                    return
                for item in batch:
                    item["result"] = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

        pipe = hami.pipe("Forks")
        future = pipe.submit({{"data": 1}})
        future.add_done_callback(lambda _: os.write(1, b"done\\n"))
        os.write(1, b"%d\\n" % future.result()["result"])
        pipe.close()
    """
    done = run_script(script)
    assert done.returncode == 0
    assert sorted(done.stdout.split()) == sorted([str(status), "done", *(["child"] if "child" in child else [])])
    assert done.stderr.endswith(message)
    assert bool(done.stderr) == bool(message)


def test_a_pipe_dropped_by_a_thread_of_the_core_is_also_closed_in_a_forked_child() -> None:
    script = """
        import os, warnings
        warnings.simplefilter("ignore")
        @hami.register
        class Inner(hami.Backend):
            def forward(self, batch):
                for item in batch: item["result"] = 1
            def close(self): closed.append(os.getpid()); done.set()
        @hami.register
        class Outer(hami.Backend):
            def forward(self, batch):
                inner = hami.pipe("Inner")
                for item in batch: item["result"] = inner({"data": 1})["result"]
        import threading
        def once():
            global closed, done
            closed, done = [], threading.Event()
            with hami.pipe("Outer") as pipe: pipe({"data": 1})
            return done.wait(60)
        print(once(), flush=True)
        child = os.fork()
        if child == 0:
            print(once(), flush=True)
            os._exit(0)
        os.waitpid(child, 0)
    """
    check_clean(run_script(slow(0, script)), "True", "True")


def test_a_forked_child_does_not_wait_for_an_init_that_was_detached_in_its_parent() -> None:
    script = """
        import os, signal, threading, warnings
        import hami
        warnings.simplefilter("ignore")

        class Interrupted(hami.Backend):
            def init(self, options):
                signal.raise_signal(signal.SIGINT)
                may_continue.wait(60)
            def forward(self, batch): ...

        def interrupt():
            global may_continue
            may_continue = threading.Event()
            try: hami.pipe("Interrupted")
            except KeyboardInterrupt: pass

        hami.register("Interrupted")(Interrupted)
        wait = hami._core.wait_for_detached_inits
        interrupt()
        if (child := os.fork()) == 0:
            interrupt()
            may_continue.set()
            print(wait(5), flush=True)
            os._exit(0)
        os.waitpid(child, 0)
        print(wait(0), flush=True)
        may_continue.set()
        print(wait(60), flush=True)
    """
    check_clean(run_script(script), "True", "False", "True")


def test_a_child_forked_while_threads_build_pipes_can_build_pipes() -> None:
    """A thread that holds a lock of the core or of plugin discovery does not exist in the child."""
    script = """
        import os, signal, threading, warnings
        import hami
        warnings.simplefilter("ignore")
        def build():
            hami.pipe("S[Identity,Identity]").close()
        def look():
            try: hami.pipe("Unknown")
            except hami.BackendNotFound: pass
        def repeat(step):
            while not enough.is_set(): step()
        enough = threading.Event()
        look()  # does the imports
        threads = [threading.Thread(target=repeat, args=[step]) for step in (build, build, build, look)]
        for thread in threads: thread.start()
        statuses = set()
        for _ in range(100):
            if (child := os.fork()) == 0:
                signal.alarm(30)
                build()
                look()
                os._exit(0)
            statuses.add(os.waitpid(child, 0)[1])
            if statuses != {0}: break
        enough.set()
        for thread in threads: thread.join()
        print(statuses, flush=True)
    """
    check_clean(run_script(script), "{0}")
