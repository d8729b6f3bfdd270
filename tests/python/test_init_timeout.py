"""The key `init_timeout` of a node: an init that takes longer fails, and continues in the background."""

from __future__ import annotations

import signal
import sys
import threading
from typing import Any

import hami
import pytest
from running import TIMEOUT, check_clean, run_script

THREADS = ["dedicated", "serialized", "concurrent"]


class Blocking:
    """Registers TestBlocks, whose init waits for `may_continue` in one instance; records what happens."""

    def __init__(self, thread: str, instance: int = 0, fails: bool = False) -> None:
        self.may_continue = threading.Event()
        self.closed: list[int] = []
        self.events: list[hami.Event] = []
        outer = self

        class Blocks(hami.Backend):
            def init(self, options: Any) -> None:
                self.number = options["instance"]
                outer.events.append(options["init_event"])
                if self.number == instance:
                    assert outer.may_continue.wait(TIMEOUT)
                    assert "init_event" in options  # its options are still valid
                    if fails:
                        raise ValueError("too late")

            def forward(self, batch: list[Any]) -> None:
                for item in batch:
                    item["result"] = threading.get_ident()

            def close(self) -> None:
                outer.closed.append(self.number)

        Blocks.thread = thread  # type: ignore[assignment]
        hami.register("TestBlocks")(Blocks)


@pytest.mark.parametrize("expression", ["TestBlocks", "S[Identity,TestBlocks]", "BackgroundThread[TestBlocks]"])
@pytest.mark.parametrize("thread", THREADS)
@pytest.mark.parametrize("fails", [False, True])
def test_an_init_that_takes_too_long_fails_and_its_backend_is_closed_when_it_ends(
    expression: str, thread: str, fails: bool
) -> None:
    blocking = Blocking(thread, fails=fails)
    with pytest.raises(hami.DeadlineExceeded) as raised:
        hami.pipe({"slow": {"backend": expression, "instance_num": 3, "init_timeout": "20ms"}})
    assert str(raised.value).splitlines()[0] == 'the init of node "slow" took longer than init_timeout = 20ms'
    assert isinstance(raised.value, TimeoutError)
    if sys.version_info >= (3, 11):
        label = expression.partition("[")[0]
        assert raised.value.__notes__ == [
            f'in init of {label}, which continues and is closed when it ends, node "slow"'
        ]
    del raised
    assert blocking.closed == []
    blocking.may_continue.set()
    assert hami._core.wait_for_detached_inits(TIMEOUT)
    assert blocking.closed == ([] if fails else [0])


@pytest.mark.parametrize("thread", THREADS)
def test_an_init_in_time_builds_the_pipe(thread: str) -> None:
    blocking = Blocking(thread, instance=-1)
    with hami.pipe({"backend": "TestBlocks", "instance_num": 2, "init_timeout": "1h"}) as pipe:
        assert all(request["result"] for request in pipe([{"data": 1}, {"data": 2}]))
    assert sorted(blocking.closed) == [0, 1]


def test_an_init_that_fails_in_time_raises_its_own_error() -> None:
    @hami.register("TestFails")
    class Fails(hami.Backend):
        thread = "concurrent"

        def init(self, options: Any) -> None:
            raise ValueError("wrong")

        def forward(self, batch: list[Any]) -> None: ...

    with pytest.raises(ValueError, match="wrong"):
        hami.pipe({"backend": "TestFails", "init_timeout": "1h"})


def test_the_event_of_the_node_fails_when_the_time_is_over() -> None:
    blocking = Blocking("concurrent")
    with pytest.raises(hami.DeadlineExceeded):
        hami.pipe({"backend": "TestBlocks", "init_timeout": "20ms"})
    (event,) = blocking.events
    assert isinstance(event.exception(), hami.DeadlineExceeded)
    blocking.may_continue.set()
    assert hami._core.wait_for_detached_inits(TIMEOUT)


def test_the_time_holds_for_all_instances_together_and_may_be_set_for_all_nodes() -> None:
    blocking = Blocking("concurrent", instance=2)
    nodes = {"global": {"init_timeout": "2s"}, "slow": {"backend": "TestBlocks", "instance_num": 4}}
    with pytest.raises(hami.DeadlineExceeded, match='node "slow" took longer than init_timeout = 2s'):
        hami.pipe(nodes)
    assert len(blocking.events) == 3  # the first two were in time
    assert blocking.closed == []
    blocking.may_continue.set()
    assert hami._core.wait_for_detached_inits(TIMEOUT)
    assert blocking.closed == [2, 1, 0]


def test_a_time_without_a_unit_is_refused() -> None:
    with pytest.raises(hami.ConfigError, match='parameter "init_timeout" of InstancesRegister takes a duration'):
        hami.pipe({"backend": "Identity", "init_timeout": 5})


def test_ctrl_c_does_not_wait_for_an_init_that_has_a_time() -> None:
    may_continue = threading.Event()
    closed: list[bool] = []

    @hami.register("TestInterrupted")
    class Interrupted(hami.Backend):
        thread = "concurrent"

        def init(self, options: Any) -> None:
            signal.raise_signal(signal.SIGINT)  # handled by the main thread, which waits for this one
            assert may_continue.wait(TIMEOUT)

        def forward(self, batch: list[Any]) -> None: ...

        def close(self) -> None:
            closed.append(True)

    with pytest.raises(KeyboardInterrupt):
        hami.pipe({"backend": "TestInterrupted", "init_timeout": "1h"})
    assert closed == []
    may_continue.set()
    assert hami._core.wait_for_detached_inits(TIMEOUT)
    assert closed == [True]


def test_the_end_of_the_program_waits_for_an_init_that_took_too_long() -> None:
    script = """
        import threading, sys
        import hami

        class Slow(hami.Backend):
            thread = "serialized"

            def init(self, options):
                assert left.wait(60)
                print("goes on", flush=True)

            def forward(self, batch): ...

            def close(self):
                print("closed", flush=True)

        left = threading.Event()
        hami.register("Slow")(Slow)
        try:
            hami.pipe({"backend": "Slow", "init_timeout": "10ms"})
        except hami.DeadlineExceeded:
            print("left", flush=True)
        left.set()
    """
    check_clean(run_script(script), "left", "goes on", "closed")
