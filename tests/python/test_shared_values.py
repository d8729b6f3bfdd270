"""Values that several threads read concurrently."""

from __future__ import annotations

from running import check_clean, run_script


def test_user_code_that_runs_while_one_thread_reads_a_dict_does_not_block_another() -> None:
    """Running Python code may release the GIL, so a thread that holds the GIL must not wait for such a thread."""
    script = """
        import os, threading
        import hami

        first_looks, second_comes = threading.Event(), threading.Event()

        class Key:
            def __repr__(self):
                first_looks.set()
                second_comes.wait()
                for _ in range(1000):
                    os.sched_yield()
                return "a key"

        @hami.register
        class Second(hami.Backend):
            def forward(self, batch):
                first_looks.wait()
                second_comes.set()
                batch[0]["result"] = True

        branches = {
            "start": {"backend": "Identity", "next": "first, second"},
            "first": {"backend": "BackgroundThread[ContiguousTensor]"},
            "second": {"backend": "Filter[Second, ContiguousTensor]"},
        }
        with hami.pipe(branches) as pipe:
            try:
                pipe({"data": {Key(): 1}})
            except hami.DataTypeError as error:
                print(str(error).splitlines()[0])
    """
    check_clean(run_script(script), "the keys of a dict that the core reads must be str, got a key")
