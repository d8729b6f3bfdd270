"""The timeline: what it records, where it goes, and that it answers the questions of its page."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import hami
import pytest
from hami import _core
from hami_tools.trace.file import Slice, TraceFile, read_trace
from running import TIMEOUT, Gate, run_script
from trace_tables import answers

Run = Callable[..., subprocess.CompletedProcess[str]]

GRAPH = {"a": {"backend": "S[Identity,TestTraceFails]", "max": 4, "next": "b"}, "b": {"backend": "Identity"}}


@hami.register("TestTraceFails")
class Fails(hami.Backend):
    """Fails for negative numbers."""

    max = 4

    def forward(self, batch: list[Any]) -> None:
        if any(item["data"] < 0 for item in batch):
            raise ValueError("negative")
        for item in batch:
            item["result"] = item["data"]


@pytest.fixture
def recorded(tmp_path: Path) -> Callable[..., TraceFile]:
    """Run requests in a pipe and return its trace."""

    def record(source: Any, requests: list[dict[str, Any]]) -> TraceFile:
        with hami.pipe(source) as pipe, pipe.trace(tmp_path / "t.pftrace") as trace:
            for future in [pipe.submit(request) for request in requests]:
                future.exception()
        assert trace.error is None
        assert trace.events > 0
        return read_trace(tmp_path / "t.pftrace")

    return record


def ids(slices: list[Slice]) -> set[Any]:
    return {each.values["request"] for each in slices}


def test_each_request_has_a_slice_from_its_submission_to_its_outcome(recorded: Callable[..., TraceFile]) -> None:
    trace = recorded(GRAPH, [{"data": number} for number in (1, 2, -1)])
    requests = trace.of("request")
    assert len(ids(requests)) == 3
    assert sorted(str(each.values["outcome"]) for each in requests) == ["completed", "completed", "failed"]


def test_a_request_is_a_flow_through_the_batches_of_all_its_nodes(recorded: Callable[..., TraceFile]) -> None:
    trace = recorded(GRAPH, [{"data": number} for number in range(6)])
    for request in trace.of("request"):
        nodes = [each.name for each in trace.of("batch") if request.flows[0] in each.flows]
        assert nodes == ["a", "b"]


def test_a_batch_has_its_node_its_items_and_the_reason_of_its_start(recorded: Callable[..., TraceFile]) -> None:
    trace = recorded(GRAPH, [{"data": number} for number in range(6)])
    batches = [each for each in trace.of("batch") if each.name == "a"]
    assert sum(int(each.values["items"]) for each in batches) == 6
    assert {each.values["node"] for each in batches} == {"a"}
    assert {each.values["started"] for each in batches} <= {"full", "target_size", "timeout", "queue_empty", "inline"}


def test_each_backend_has_a_slice_inside_the_batch(recorded: Callable[..., TraceFile]) -> None:
    trace = recorded(GRAPH, [{"data": 1}])
    batch = next(each for each in trace.of("batch") if each.name == "a")
    inside = [
        each.name
        for each in trace.of("backend")
        if each.track == batch.track
        and batch.start <= each.start
        and each.start + (each.duration or 0) <= batch.start + (batch.duration or 0)
    ]
    assert inside == ["S", "Identity", "TestTraceFails"]


def test_a_hop_names_the_node_that_the_request_goes_to(recorded: Callable[..., TraceFile]) -> None:
    trace = recorded(GRAPH, [{"data": 1}])
    assert [each.values["node"] for each in trace.slices if each.name == "hop"] == ["a", "b"]


def test_each_request_of_a_failed_batch_is_marked_when_it_runs_again(tmp_path: Path) -> None:
    with hami.pipe({"backend": "TestTraceFails", "max": 4}) as pipe, pipe.trace(tmp_path / "t"):
        with pytest.raises(hami.BatchError):
            pipe([{"data": number} for number in (1, -1, 2)])
        retried = pipe.stats()["default"].retried
    assert len([each for each in read_trace(tmp_path / "t").slices if each.name == "retry"]) == retried > 0


def test_what_never_ran_is_marked_at_its_node(tmp_path: Path) -> None:
    gate = Gate()

    @hami.register("TestTraceGate")
    class Waits(hami.Backend):
        def forward(self, batch: list[Any]) -> None:
            gate.enter()
            for item in batch:
                item["result"] = 1

    source = {"backend": "TestTraceGate", "max_queue_size": 2, "on_full": "reject"}
    with hami.pipe(source) as pipe, pipe.trace(tmp_path / "t"):
        running = pipe.submit({"data": 1})
        gate.wait_for_arrival()
        expired = pipe.submit({"data": 2}, timeout=0.0)
        cancelled = pipe.submit({"data": 3})
        cancelled.cancel()
        waiting = [pipe.submit({"data": 4}) for _ in range(4)]
        gate.open()
        for future in (running, expired, *waiting):
            future.exception()
    trace = read_trace(tmp_path / "t")
    outcomes = {str(each.values["outcome"]) for each in trace.of("request")}
    assert outcomes == {"completed", "expired", "cancelled", "rejected"}
    marks = {(each.name, each.values["node"]) for each in trace.slices if each.category == "outcome"}
    assert {("rejected", "default"), ("cancelled", "default")} <= marks


def test_a_slow_request_replaces_the_file_with_what_led_to_it(tmp_path: Path) -> None:
    with hami.pipe("Identity") as pipe, pipe.trace(tmp_path / "t", last=60.0, slow=1e-9) as trace:
        pipe({"data": 1})
    assert trace.written == 1
    found = read_trace(tmp_path / "t")
    assert [each.name for each in found.of("request")] == ["request"]
    assert "slow request" in {each.name for each in found.slices}
    assert list(tmp_path.iterdir()) == [tmp_path / "t"]


def test_two_traces_at_a_time_are_an_error_and_the_first_goes_on(tmp_path: Path) -> None:
    with hami.pipe("Identity") as one, hami.pipe("Identity") as other, one.trace(tmp_path / "t"):
        with pytest.raises(hami.AlreadyExists, match="stop it first"):
            other.trace(tmp_path / "u")
        other({"data": 1})
    assert len(read_trace(tmp_path / "t").of("request")) == 1
    assert not (tmp_path / "u").exists()


@pytest.mark.parametrize(
    ("settings", "message"),
    [({"last": 1.0}, "belong together"), ({"last": 0.0, "slow": 1.0}, "last must"), ({"last": 1, "slow": -1}, "slow")],
)
def test_wrong_settings_are_an_error(settings: dict[str, float], message: str, tmp_path: Path) -> None:
    with hami.pipe("Identity") as pipe, pytest.raises(hami.ConfigError, match=message):
        pipe.trace(tmp_path / "t", **settings)
    assert not _core.trace_active()


@pytest.mark.parametrize("path", ["no/folder/t", "/dev/full"])
def test_a_file_that_cannot_be_written_is_an_error_of_the_start(path: str) -> None:
    with hami.pipe("Identity") as pipe:
        with pytest.raises(hami.ConfigError, match="cannot write the trace"):
            pipe.trace(path)
        assert pipe({"data": 1})["result"] == 1


def test_a_fifo_without_a_reader_is_an_error_of_the_start(tmp_path: Path) -> None:
    """Opening it would wait for a reader."""
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    with hami.pipe("Identity") as pipe:
        with pytest.raises(hami.ConfigError, match="it is a FIFO that no process reads; start the reader first"):
            pipe.trace(fifo)
        assert pipe({"data": 1})["result"] == 1


def test_a_fifo_with_a_reader_gets_the_trace(tmp_path: Path) -> None:
    """As a file, also what exceeds the 64 KiB that a FIFO holds."""
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    with (
        open(tmp_path / "read", "wb") as read,
        subprocess.Popen(["cat", str(fifo)], stdout=read) as reader,
        hami.pipe("Identity") as pipe,
    ):
        trace = start_when_read(pipe, fifo)
        for _ in range(3000):
            pipe({"data": 1})
        trace.stop()
        assert reader.wait(TIMEOUT) == 0
    assert trace.error is None
    assert (tmp_path / "read").stat().st_size == trace.written > 65536
    assert read_trace(tmp_path / "read").of("request")


def start_when_read(pipe: hami.Pipe, fifo: Path) -> Any:
    """Start a trace as soon as the reader has opened the FIFO."""
    deadline = time.monotonic() + TIMEOUT
    while time.monotonic() < deadline:
        try:
            return pipe.trace(fifo)
        except hami.ConfigError:
            os.sched_yield()
    raise AssertionError("nothing has opened the FIFO")


def test_a_closed_pipe_records_no_trace(tmp_path: Path) -> None:
    pipe = hami.pipe("Identity")
    pipe.close()
    with pytest.raises(hami.PipeClosed):
        pipe.trace(tmp_path / "t")


def test_a_full_disk_ends_the_trace_with_one_line_and_the_pipe_goes_on(tmp_path: Path) -> None:
    script = """
        import hami, resource, sys
        resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, 1_000_000))
        with hami.pipe("Identity") as pipe:
            trace = pipe.trace(sys.argv[1])
            while hami._core.trace_active():
                assert pipe({"data": 1})["result"] == 1
            assert pipe({"data": 1})["result"] == 1
            trace.stop()
            assert "File too large" in trace.error, trace.error
        """
    done = run_script(script, str(tmp_path / "t"))
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("the trace has ended early") == 1
    assert len(read_trace(tmp_path / "t").of("request")) > 0


def test_the_file_of_a_killed_process_is_readable(tmp_path: Path) -> None:
    script = """
        import hami, os, signal, sys
        with hami.pipe("Identity") as pipe:
            pipe.trace(sys.argv[1])
            while os.path.getsize(sys.argv[1]) < 100_000:
                pipe({"data": 1})
            os.kill(os.getpid(), signal.SIGKILL)
        """
    assert run_script(script, str(tmp_path / "t")).returncode == -signal.SIGKILL
    assert len(read_trace(tmp_path / "t").of("request")) > 100


def test_the_environment_traces_a_program_until_it_ends(tmp_path: Path) -> None:
    script = """
        import os, sys
        os.environ["HAMI_TRACE"] = sys.argv[1]
        import hami
        pipe = hami.pipe("Identity")
        pipe({"data": 1})
        """
    assert run_script(script, str(tmp_path / "t-%p")).returncode == 0
    (file,) = tmp_path.iterdir()
    assert len(read_trace(file).of("request")) == 1


def test_user_code_is_in_the_timeline(tmp_path: Path) -> None:
    with hami.pipe("Identity") as pipe:
        assert _core.trace_begin("no trace") == 0
        with pipe.trace(tmp_path / "t"):
            token = _core.trace_begin("outer")
            pipe({"data": 1})
            _core.trace_end(token)
            moment = time.monotonic_ns()
            _core.trace_slice("apart", moment - 1000, moment)
    found = {each.name: each.duration for each in read_trace(tmp_path / "t").of("timer")}
    assert set(found) == {"outer", "apart"}
    assert found["apart"] == 1000


def test_run_and_bench_write_a_trace(hami_command: Run, tmp_path: Path) -> None:
    for number, words in enumerate(
        (["run", "Identity", "--text", "a"], ["bench", "Identity", "--text", "a", "--seconds", "0.05"])
    ):
        file = tmp_path / f"{number}.pftrace"
        done = hami_command(*words, "--trace", str(file))
        assert done.returncode == 0, done.stderr
        assert len(read_trace(file).of("request")) > 0


def test_trace_last_without_a_trace_is_an_error(hami_command: Run) -> None:
    done = hami_command("run", "Identity", "--text", "a", "--trace-last", "10s")
    assert done.returncode == 1
    assert "--trace FILE" in done.stderr


def test_the_messages_of_perfetto_read_the_file(recorded: Callable[..., TraceFile], tmp_path: Path) -> None:
    messages = pytest.importorskip(
        "perfetto.protos.perfetto.trace.perfetto_trace_pb2", reason="the package perfetto is not installed"
    )
    trace = recorded(GRAPH, [{"data": number} for number in range(6)])
    loaded = messages.Trace()
    loaded.ParseFromString((tmp_path / "t.pftrace").read_bytes())
    events = [packet.track_event for packet in loaded.packet if packet.HasField("track_event")]
    assert len([event for event in events if event.type != event.TYPE_SLICE_END]) == len(trace.slices)
    described = {packet.track_descriptor.uuid for packet in loaded.packet if packet.HasField("track_descriptor")}
    assert {event.track_uuid for event in events} <= described
    assert loaded.packet[0].trace_packet_defaults.timestamp_clock_id == 3


@pytest.mark.parametrize("engine", ["sqlite", "perfetto"])
def test_the_questions_of_the_page_are_answered_in_sql(
    engine: str, recorded: Callable[..., TraceFile], tmp_path: Path
) -> None:
    trace = recorded(GRAPH, [{"data": number} for number in range(6)])
    slowest, outcomes, waits, backends, left = answers(engine, tmp_path / "t.pftrace")
    assert [row["ms"] for row in slowest] == sorted((row["ms"] for row in slowest), reverse=True)
    assert {row["request"] for row in slowest} == ids(trace.of("request"))
    assert [(row["outcome"], row["requests"]) for row in outcomes] == [("completed", 6)]
    assert "a" in {row["node"] for row in waits} <= {"a", "b"}
    assert {row["backend"] for row in backends} == {"S", "Identity", "TestTraceFails"}
    assert left == []
