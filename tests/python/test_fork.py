"""Processes that fork: pipes of the parent in the child, and children that a backend forks."""

from __future__ import annotations

import pytest
from running import check_clean, run_script, slow

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


def test_a_pipe_of_before_a_fork_is_refused_in_the_child_and_a_new_one_works() -> None:
    """After `fork` a call in the child is a clear error."""
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


@pytest.mark.parametrize(
    ("child", "status", "told"),
    [
        ("print('child', flush=True)", 0, ""),
        ("sys.exit(5)", 5, ""),
        ("sys.exit()", 0, ""),
        ("sys.exit('enough')", 1, "enough\n"),
        ("raise ValueError('gone wrong')", 1, "ValueError: gone wrong\n"),
        ("pipe({'data': 1})", 1, "this pipe was made before the process forked; make a new one in the child\n"),
    ],
)
def test_a_child_that_a_backend_forks_ends_with_its_forward(child: str, status: int, told: str) -> None:
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
    assert done.stderr.endswith(told)
    assert bool(done.stderr) == bool(told)


def test_a_pipe_that_a_thread_of_the_core_drops_is_closed_in_a_fork_too() -> None:
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


def test_a_process_that_forks_while_threads_build_pipes_builds_them_in_the_child_too() -> None:
    """Whoever held a lock of the core, or of what looks for plugins, is not in the child."""
    script = """
        import os, signal, threading, warnings
        import hami
        warnings.simplefilter("ignore")
        def build():
            hami.pipe("S[Identity,Identity]").close()
        def look():
            try: hami.pipe("Nobody")
            except hami.BackendNotFound: pass
        def go_on(step):
            while not enough.is_set(): step()
        enough = threading.Event()
        look()  # imports what it needs
        threads = [threading.Thread(target=go_on, args=[step]) for step in (build, build, build, look)]
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
