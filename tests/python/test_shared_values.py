"""Values that several threads look into at once."""

from __future__ import annotations

from running import check_clean, run_script


def test_code_of_users_that_runs_while_one_thread_looks_into_a_dict_does_not_stop_another() -> None:
    """Whoever runs Python code lets the global lock go now and then, so nobody may wait with it for who runs some."""
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
