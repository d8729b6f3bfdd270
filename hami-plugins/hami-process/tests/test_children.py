"""The life of a child: start, crash, restart, close; and what passes between it and its parent."""

from __future__ import annotations

import gc
import json
import logging
import os
import select
import signal
import socket
import subprocess
import sys
import time
from concurrent.futures import CancelledError
from pathlib import Path
from types import SimpleNamespace

import hami
import numpy as np
import pytest

from hami_process import ChildDied, ChildTraceback, SharedMemoryFull, native
from hami_process.blocks import Block, Budget, Held, Hold
from hami_process.codec import CannotSend
from hami_process.link import Link, Supervisor
from hami_process.monitor import Monitor

HERE = Path(__file__).parent


def until(condition, seconds=20.0):
    limit = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < limit, "it did not happen in time"
        time.sleep(0.001)


def test_an_instance_runs_in_a_process_of_its_own_with_its_parameters(act):
    facts = act("describe", extra=1, priority=200)
    assert facts["pid"] != os.getpid()
    assert (facts["step"], facts["instance"], facts["variable"]) == (3, 0, "at 0")
    assert facts["texts"] == ["${max_queue_size}", "${node_name},"]
    assert facts["keys"] == ["data", "extra", "priority"]
    assert (facts["priority"], facts["deadline"]) == (200, None)


def test_the_range_and_the_remarks_are_those_of_the_child(shared):
    assert shared.describe()["nodes"]["acts"]["batching"]["max"] == 8
    assert "a remark of the child" in str(shared.remarks())


def test_a_batch_stays_one_batch(shared):
    requests = [{"data": ("describe",)} for _ in range(8)]
    shared(requests)
    assert max(request["result"]["batches"][0] for request in requests) > 1


def test_a_deadline_reaches_the_child(shared):
    limit = time.monotonic() + 60
    assert shared({"data": ("describe",)}, timeout=60)["result"]["deadline"] == pytest.approx(limit, abs=5)


def test_an_exception_keeps_its_type_and_has_the_traceback_of_the_child(act):
    with pytest.raises(ValueError, match="bad value") as raised:
        act("fail", "value")
    assert isinstance(raised.value.__cause__, ChildTraceback)
    assert 'raise ValueError("bad value")' in str(raised.value.__cause__)
    with pytest.raises(hami.RequestError, match=r"process_backends\.OwnError: 7: unknown here"):
        act("fail", "own")
    with pytest.raises(hami.RequestError, match=r"process_backends\.TextlessError\n"):
        act("fail", "textless")


def test_one_bad_request_does_not_fail_its_batch(shared):
    requests = [{"data": ("echo", 1)}, {"data": ("fail", "value")}, {"data": ("fail", "item")}, {"data": ("echo", 4)}]
    with pytest.raises(hami.BatchError) as raised:
        shared(requests)
    assert [(index, type(error)) for index, error in raised.value.errors] == [(1, ValueError), (2, KeyError)]
    assert [request.get("result") for request in requests] == [1, None, None, 4]


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("nameless", "RequestError"),
        ("homeless", "RequestError"),
        ("untested", "RequestError"),
        ("frozen", "FrozenError"),
        ("empty", "EmptyError"),
        ("huge", "RequestError"),
    ],
)
def test_what_an_exception_does_ends_neither_the_child_nor_its_batch(shared, kind, expected):
    pid = shared({"data": ("describe",)})["result"]["pid"]
    requests = [{"data": ("echo", 1)}, {"data": ("fail", kind)}, {"data": ("echo", 4)}]
    with pytest.raises(hami.BatchError) as raised:
        shared(requests)
    [(index, error)] = raised.value.errors
    assert (index, type.__dict__["__name__"].__get__(type(error))) == (1, expected)
    assert isinstance(error.__cause__, ChildTraceback)
    assert [request.get("result") for request in requests] == [1, None, 4]
    assert shared({"data": ("describe",)})["result"]["pid"] == pid


def test_a_backend_without_a_result_leaves_the_request_to_the_next():
    with hami.pipe("S[Process[LeavesNothing],(or)Add(result=2)]") as pipe:
        assert "result" in pipe({"data": 1})


def test_a_crash_fails_its_batch_with_the_signal_and_the_next_request_runs(shared):
    before = shared.stats()["acts"].counters
    requests = [{"data": ("signal", int(signal.SIGSEGV))}, {"data": ("echo", 1)}]
    with pytest.raises(hami.BatchError) as raised:
        shared(requests)
    assert {type(error) for _, error in raised.value.errors} == {ChildDied}
    assert raised.value.errors[0][1].signal == signal.SIGSEGV
    assert "was ended by SIGSEGV (signal 11)" in str(raised.value.errors[0][1])
    assert shared({"data": ("echo", 5)})["result"] == 5
    with pytest.raises(ChildDied, match="exited with status 7") as exited:
        shared({"data": ("exit", 7)})
    assert (exited.value.signal, exited.value.exit_code) == (None, 7)
    assert shared({"data": ("echo", 6)})["result"] == 6
    until(lambda: shared.stats()["acts"].counters.get("process_restarts", 0) >= before.get("process_restarts", 0) + 2)
    assert shared.stats()["acts"].counters["process_deaths"] >= before.get("process_deaths", 0) + 2


@pytest.mark.parametrize(
    ("note", "error", "message"),
    [
        ("raise in init", ValueError, "no model here"),
        ("raise a long text in init", ValueError, "no model here"),  # longer than a mailbox
        ("exit in init", ChildDied, "exited with status 3"),
    ],
)
def test_an_init_that_fails_is_the_error_of_the_pipe(note, error, message):
    with pytest.raises(error, match=message):
        hami.pipe(f"Process[Act(note='{note}')]")


def test_a_child_that_never_starts_is_ended():
    with pytest.raises(ChildDied, match=r"was ended: it was not ready after start_timeout, 0\.05 s"):
        hami.pipe({"backend": "Process[Act(note='hang in init')]", "start_timeout": "50ms"})


def test_an_answer_after_its_timeout_goes_to_nobody(shared):
    def is_cancelled_after(seconds):
        with pytest.raises(hami.DeadlineExceeded):
            shared({"data": ("until_cancelled",)}, timeout=seconds)
        assert shared({"data": ("echo", "mine")})["result"] == "mine"
        return shared({"data": ("was_cancelled",)})["result"]

    assert any(is_cancelled_after(seconds) for seconds in (0.1, 1, 10))  # a busy child may get it too late


def test_a_cancellation_reaches_the_child(shared, caplog):
    future = shared.submit({"data": ("until_cancelled",)})
    until(lambda: "it waits" in caplog.text)
    assert future.cancel()
    with pytest.raises(CancelledError):
        future.result()
    assert shared({"data": ("was_cancelled",)})["result"] is True


def test_a_child_that_hangs_is_killed_when_no_request_waits():
    with hami.pipe({"backend": "Process[Act]", "kill_after": "50ms"}) as pipe:
        deaths = 0
        for seconds in (0.1, 1, 10):  # a busy child may get the request too late
            with pytest.raises(hami.DeadlineExceeded):
                pipe({"data": ("hang",)}, timeout=seconds)
            assert pipe({"data": ("echo", 1)})["result"] == 1
            deaths = pipe.stats()["default"].counters.get("process_deaths", 0)
            if deaths:
                break
        assert deaths == 1


def test_logs_and_counters_arrive_in_the_parent(shared, caplog):
    with caplog.at_level(logging.WARNING):
        shared({"data": ("log_and_count", "hello")})
        until(lambda: "child says hello" in caplog.text)
    (record,) = [record for record in caplog.records if "hello" in record.getMessage()]
    assert (record.name, record.levelname, record.filename) == ("hami.node.acts", "WARNING", "process_backends.py")
    assert record.process != os.getpid()
    until(lambda: shared.stats()["acts"].counters.get("said"))


def test_a_long_log_arrives_in_part(act, caplog):
    with caplog.at_level(logging.WARNING):
        act("log_and_count", "€" * 30_000)
        until(lambda: "child says" in caplog.text)
    assert "€" * 10_000 in caplog.text


def test_parts_pass_through(shared):
    request = {"data": ("emit_all", [1, "two", [3.0]])}
    assert list(shared.stream(request)) == [1, "two", [3.0]]
    assert request["result"] == [True, True, True]
    assert shared({"data": ("emit_all", [1])})["result"] == [False]


def test_a_part_that_cannot_be_read_fails_its_request_alone(shared):
    """It ended the batch in the middle, and its other parts then failed the next requests."""
    message = r"a part of .* cannot be read in this process: no module named only_there"
    parts, neighbour = hami.Queue(8), {"data": ("echo", 1)}
    odd = {"data": ("emit_child_only", 3), "parts": parts}
    with pytest.raises(hami.DataTypeError, match=message):
        shared(odd)
    assert "result" not in odd
    for _ in range(3):
        assert shared(dict(neighbour))["result"] == 1
    requests = [{"data": ("emit_child_only", 3), "parts": hami.Queue(8)}, *(dict(neighbour) for _ in range(7))]
    with pytest.raises(hami.BatchError):
        shared(requests)
    assert [request.get("result") for request in requests] == [None, *[1] * 7]


def test_a_class_with_thread_process_runs_in_one_and_streams():
    with hami.pipe("Letters") as pipe:
        assert list(pipe.stream({"data": "abc"})) == ["a", "b", "c"]
        assert pipe({"data": "ab"})["result"] == ["a", "b"]


def test_close_closes_the_backend_of_the_child(tmp_path):
    path = tmp_path / "closed"
    with hami.pipe(f"Process[Act(note='{path}')]") as pipe:
        pid = pipe({"data": ("describe",)})["result"]["pid"]
    assert path.read_text() == "closed\n"
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_the_death_of_the_parent_ends_its_children():
    program = (
        "import hami, process_backends, sys\n"
        "pipe = hami.pipe('Process[Act]')\n"
        "print(pipe({'data': ('describe',)})['result']['pid'], flush=True)\n"
        "pipe.submit({'data': ('hang',)})\n"
        "sys.stdin.read()\n"
    )
    command = [sys.executable, "-c", program]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=HERE, text=True) as parent:
        child = os.pidfd_open(int(parent.stdout.readline()))
        parent.kill()
    assert select.select([child], [], [], 20)[0]
    os.close(child)


def test_shared_memory_that_is_used_up_is_an_error_and_nothing_else_fails():
    with hami.pipe({"backend": "Process[Act]", "shared_memory": "4MiB"}) as pipe:
        with pytest.raises(SharedMemoryFull, match="shared_memory allows"):
            pipe({"data": ("echo", np.ones(1 << 20))})
        with pytest.raises(SharedMemoryFull, match="shared_memory allows"):
            pipe({"data": ("full", 1 << 20, 1.0)})
        with pytest.raises(SharedMemoryFull, match="shared_memory allows"):
            pipe({"data": ("numbers", 1 << 20)})
        assert pipe({"data": ("echo", np.ones(1 << 17))})["result"].sum() == 1 << 17
        assert pipe.stats()["default"].counters.get("process_deaths", 0) == 0


def test_memory_that_cannot_be_mapped_is_given_back(monkeypatch):
    def refuse(*_):
        raise SharedMemoryFull("cannot map")

    link = object.__new__(Link)
    link._budget, link._blocks = Budget(1 << 20), {}
    native.functions()
    before = len(os.listdir("/proc/self/fd"))
    monkeypatch.setattr(native.Memory, "__init__", refuse)
    with pytest.raises(SharedMemoryFull, match="cannot map"):
        link._create(1 << 20)
    assert len(os.listdir("/proc/self/fd")) == before
    assert link._budget.add(1 << 20) == 2


def test_a_view_that_outlives_its_memory_writes_nowhere():
    descriptor = native.create_memory(4096)
    memory = native.Memory(descriptor, 4096)
    os.close(descriptor)
    block, written = Block(1, memory), []
    block.busy = SimpleNamespace(store=written.append)
    hold = Hold(block, Held(0))
    memory.__del__()  # as the collector of a cycle may do first
    del hold
    assert not written


def test_a_system_without_memfd_uses_a_file_system(monkeypatch, tmp_path):
    monkeypatch.setenv("HAMI_PROCESS_MEMFD", "0")
    with hami.pipe({"backend": "Process[Act]"}) as pipe:
        assert pipe({"data": ("echo", np.ones(1 << 20))})["result"].sum() == 1 << 20
        monkeypatch.setattr("hami_process.native.FOLDER", str(tmp_path / "missing"))
        with pytest.raises(SharedMemoryFull, match="No such file or directory"):
            pipe({"data": ("echo", np.ones(1 << 22))})


def test_a_request_of_many_arrays_does_not_fill_the_socket(monkeypatch):
    start = Monitor.start

    def start_with_an_ordinary_buffer(*begin):
        running = start(*begin)
        running.link.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 208 << 10)  # net.core.wmem_max, by default
        return running

    monkeypatch.setattr(Monitor, "start", start_with_an_ordinary_buffer)
    frame = np.zeros(1 << 20, np.uint8)
    with hami.pipe({"backend": "Process[Act]", "shared_memory": "310MiB"}) as pipe:
        assert pipe({"data": ("echo", True), "frames": [frame] * 300})["result"] is True
        assert not pipe.stats()["default"].counters.get("process_deaths")


def test_memory_that_one_direction_has_used_serves_the_other():
    with hami.pipe({"backend": "Process[Act]", "shared_memory": "20MiB"}) as pipe:
        for _ in range(2):
            assert pipe({"data": ("array_facts", np.ones(12 << 17))})["result"][2] == 12 << 17
            assert pipe({"data": ("full", 12 << 17, 1.0)})["result"].sum() == 12 << 17


def test_arrays_of_failed_requests_are_given_back_without_a_collector():
    with hami.pipe({"backend": "Process[Act]", "shared_memory": "20MiB"}) as pipe:
        for _ in range(4):
            with pytest.raises(ValueError, match="bad value"):
                pipe({"data": ("fail_with", np.ones(8 << 17))})


def test_blocks_that_were_given_up_before_the_child_has_taken_them_stay_given_up():
    small, large = np.zeros(2 << 20, np.uint8), np.zeros(18 << 20, np.uint8)
    with hami.pipe({"backend": "Process[Act]", "shared_memory": "24MiB"}) as pipe:
        for _ in range(3):
            for frames in ([small] * 8 + [large], [large, large]):
                with pytest.raises(SharedMemoryFull):
                    pipe({"data": ("echo", 1), "frames": frames})
            pipe({"data": ("echo", 1), "frames": large})
        assert pipe({"data": ("mapped_blocks",)})["result"] <= 4  # the mailboxes, and what is in use


def test_a_child_without_descriptors_says_so_and_is_replaced(caplog):
    with hami.pipe({"backend": "Process[Act]"}) as pipe:
        pipe({"data": ("open_no_more_files",)})
        with pytest.raises(ChildDied, match="exited with status 71"):
            pipe({"data": ("echo", np.ones(1 << 18))})
        assert pipe({"data": ("echo", np.ones(1 << 18))})["result"].size == 1 << 18
    assert "it has no file descriptor left" in caplog.text


def test_a_small_shm_without_memfd_serves_what_fits_and_says_what_does_not():
    """In a mount namespace with a /dev/shm of 64 MB, where a seccomp filter forbids memfd_create."""
    run = subprocess.run(
        [sys.executable, "in_a_small_container.py"], cwd=HERE, capture_output=True, text=True, timeout=120, check=False
    )
    if run.returncode == 77:
        pytest.skip(run.stdout)
    assert run.returncode == 0, run.stderr
    assert run.stdout.splitlines() == [
        "memfd_create: Operation not permitted",
        "8 MB: answered",
        "32 MB: SharedMemoryFull, the system forbids memfd and /dev/shm is full: give the container a larger one "
        "(--shm-size)",
        "8 MB: answered",
        "deaths: 0",
    ]


def test_objects_can_be_refused():
    with hami.pipe({"backend": "Process[Act]", "objects": "refuse"}) as pipe:
        with pytest.raises(hami.DataTypeError, match='objects is "refuse"'):
            pipe({"data": ("echo", object())})
        assert pipe({"data": ("echo", {1, "a"})})["result"] == {1, "a"}
    assert issubclass(CannotSend, hami.DataTypeError)


@pytest.mark.parametrize(("name", "value"), [("frozen", True), ("executable", "")])
def test_a_program_without_an_interpreter_says_so_and_does_not_start_itself(name, value, monkeypatch):
    monkeypatch.setattr(sys, name, value, raising=False)
    with pytest.raises(hami.ConfigError, match="Process starts a Python interpreter, and this program has none"):
        hami.pipe("Process[Act]")


def test_a_class_that_no_child_can_import_is_an_error():
    class Local(hami.Backend):
        def forward(self, batch): ...

    hami.register(Local)
    with pytest.raises(hami.ConfigError, match="is defined inside a function"):
        hami.pipe("Process[Local]")


def test_a_forked_process_leaves_the_child_alone(shared):
    pid = os.fork()
    if pid == 0:
        try:
            shared.close()
        finally:
            os._exit(0)
    os.waitpid(pid, 0)
    assert shared({"data": ("echo", 1)})["result"] == 1


def test_a_forked_process_does_not_release_what_its_parent_keeps(act):
    kept = act("full", 1 << 18, 1.0)
    pid = os.fork()
    if pid == 0:
        del kept
        os._exit(0)
    os.waitpid(pid, 0)
    for _ in range(2):
        act("full", 1 << 18, 2.0)
    assert (kept == 1.0).all()


def test_a_process_that_the_backend_has_forked_does_not_delay_the_news_of_its_death(shared):
    with pytest.raises(ChildDied):
        shared({"data": ("leave_a_process",)}, timeout=4)
    assert shared({"data": ("echo", 1)})["result"] == 1


def test_a_child_that_starts_while_its_pipe_closes_is_ended():
    killed: list[str] = []
    link = SimpleNamespace(label="X", running=SimpleNamespace(kill=killed.append))
    supervisor = Supervisor(lambda: link, lambda *_: None, 1.0)
    link.wait_until_ready = lambda *_: supervisor.close()
    with pytest.raises(ChildDied, match="after its pipe was closed"):
        supervisor.start()
    assert killed


def test_a_setup_of_any_length_reaches_the_child(monkeypatch):
    monkeypatch.setattr(sys, "argv", [*sys.argv, "long" * 250_000])
    monkeypatch.setenv("HAMI_ALLOWED_VARIABLES", "HAMI_TEST_VARIABLE")
    note, value = "y" * 300_000, "x" * 300_000
    environment = [f"HAMI_TEST_VARIABLE={value}"]
    with hami.pipe({"backend": "Process[Act]", "note": note, "environment": environment}) as pipe:
        facts = pipe({"data": ("describe",)})["result"]
    assert (facts["texts"][0], facts["variable"]) == (note, value)


@pytest.mark.parametrize("name", ["run.pftrace", "run-%p.pftrace"])
def test_a_trace_contains_the_batches_of_the_children(name, tmp_path):
    pytest.importorskip("hami_tools", reason="hami-tools is not installed")
    program = (
        "import hami, process_backends\nwith hami.pipe('Process[Act]') as pipe:\n    pipe({'data': ('echo', 1)})\n"
    )
    trace = {"HAMI_TRACE": str(tmp_path / name)}
    subprocess.run([sys.executable, "-c", program], cwd=HERE, env={**os.environ, **trace}, timeout=60, check=True)
    [parent] = [path for path in tmp_path.iterdir() if path.name.count(".") == 1]
    command = [sys.executable, "-m", "hami", "trace", "convert", parent, "--chrome", tmp_path / "out.json"]
    subprocess.run(command, timeout=60, check=True)
    batches = [each for each in json.loads((tmp_path / "out.json").read_text())["traceEvents"] if each["name"] == "Act"]
    assert {each["pid"] for each in batches} == {int(path.suffixes[0][1:]) for path in tmp_path.glob("run*.*.pftrace")}


def test_a_child_imports_nothing_from_the_current_folder(tmp_path, monkeypatch):
    (tmp_path / "socket.py").write_text("raise SystemExit(9)\n")
    monkeypatch.chdir(tmp_path)
    with hami.pipe("Process[Act]") as pipe:
        assert pipe({"data": ("echo", 1)})["result"] == 1


@pytest.fixture
def mapped():
    """Return how many blocks of shared memory are mapped; nothing but their last reference frees them."""
    gc.collect()
    gc.disable()
    yield lambda: Path("/proc/self/maps").read_text().count("memfd:hami-process")
    gc.enable()


def test_the_memory_of_a_dead_child_is_given_back_at_once(shared, mapped):
    assert shared({"data": ("echo", np.ones(1 << 18))})["result"].size == 1 << 18
    before = mapped()
    with pytest.raises(ChildDied):
        shared({"data": ("exit", 1)})
    assert shared({"data": ("echo", np.ones(1 << 18))})["result"].size == 1 << 18
    until(lambda: mapped() <= before)


def test_the_memory_of_a_closed_pipe_is_given_back_at_once(mapped):
    before = mapped()
    with hami.pipe("Process[Act]") as pipe:
        assert pipe({"data": ("echo", np.ones(1 << 18))})["result"].size == 1 << 18
        assert mapped() > before
    until(lambda: mapped() <= before)


def test_every_request_has_one_outcome_while_children_are_killed(shared):
    futures = [shared.submit({"data": ("echo", number)}) for number in range(300)]
    for number in range(3):
        futures += [shared.submit({"data": ("signal", int(signal.SIGKILL))})]
        futures += [shared.submit({"data": ("echo", number)}) for _ in range(100)]
    outcomes = [future.exception(timeout=60) for future in futures]
    assert {type(outcome) for outcome in outcomes} <= {type(None), ChildDied}
    answers = [future.result() for future, outcome in zip(futures, outcomes, strict=True) if outcome is None]
    assert all(answer["result"] == answer["data"][1] for answer in answers)
    assert sum(outcome is not None for outcome in outcomes) >= 3


def test_ctrl_c_interrupts_the_caller_and_the_child_serves_on():
    program = (
        "import hami, os, process_backends, signal, threading\n"
        "with hami.pipe('Process[Act]') as pipe:\n"
        "    pid = pipe({'data': ('describe',)})['result']['pid']\n"
        "    threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT)).start()\n"
        "    try:\n"
        "        pipe({'data': ('until_cancelled',)})\n"
        "    except KeyboardInterrupt:\n"
        "        print(pipe({'data': ('was_cancelled',)})['result'])\n"
        "    print(pipe({'data': ('describe',)})['result']['pid'] == pid)\n"
    )
    run = subprocess.run(
        [sys.executable, "-c", program], cwd=HERE, capture_output=True, text=True, timeout=300, check=False
    )
    assert (run.stdout, run.returncode) == ("True\nTrue\n", 0), run.stderr


def test_a_program_that_ends_without_close_ends_its_children():
    program = (
        "import hami, process_backends\n"
        "pipe = hami.pipe('Process[Act]')\n"
        "print(pipe({'data': ('describe',)})['result']['pid'])\n"
    )
    run = subprocess.run(
        [sys.executable, "-c", program], cwd=HERE, capture_output=True, text=True, timeout=300, check=False
    )
    assert (run.stderr, run.returncode) == ("", 0)
    with pytest.raises(ProcessLookupError):
        os.kill(int(run.stdout), 0)


def test_a_configuration_chooses_no_module_and_no_variable_that_loads_code(tmp_path, monkeypatch):
    (tmp_path / "stranger_of_a_file.py").write_text("print('it ran', flush=True)\n")
    monkeypatch.syspath_prepend(tmp_path)
    node = {"backend": "Process[Act]", "preload": ["stranger_of_a_file"]}
    with pytest.raises(hami.ConfigError, match="preload: the module 'stranger_of_a_file' is not allowed"):
        hami.pipe({"n": node})
    for name in ("LD_PRELOAD", "PYTHONPATH", "HAMI_PLUGIN_PATH", "HAMI_ALLOWED_LIBRARIES", "OMP_TOOL_LIBRARIES"):
        with pytest.raises(hami.ConfigError, match=f"environment: the variable '{name}' is not allowed"):
            hami.pipe({"n": {"backend": "Process[Act]", "environment": [f"{name}=/tmp"]}})


def test_a_program_chooses_modules_of_its_children_and_their_variables(tmp_path, monkeypatch):
    (tmp_path / "listed_module.py").write_text("import os; os.environ['HAMI_TEST_VARIABLE'] += ' changed'\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("HAMI_ALLOWED_MODULES", "listed_module")
    monkeypatch.setenv("HAMI_ALLOWED_VARIABLES", "HAMI_TEST_VARIABLE")
    node = {"backend": "Process[Act]", "preload": ["listed_module", "json"], "environment": ["HAMI_TEST_VARIABLE=set"]}
    with hami.pipe({"n": node}) as pipe:
        assert pipe({"data": ("describe",)})["result"]["variable"] == "set changed"


@pytest.mark.parametrize("closed", [(0,), (0, 1), (0, 1, 2)])
def test_a_process_without_standard_streams_has_children(closed):
    program = """
import os, sys
for stream in map(int, sys.argv[1:]):
    os.close(stream)
import hami
with hami.pipe("Process[Identity]") as pipe:
    os._exit(pipe({"data": 7})["result"])
"""
    ended = subprocess.run(
        [sys.executable, "-c", program, *map(str, closed)], capture_output=True, timeout=120, check=False
    )
    assert (ended.returncode, ended.stderr) == (7, b"")
