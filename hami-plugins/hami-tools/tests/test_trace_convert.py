"""The reader of timelines, and their conversion for other tools."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import hami
import pytest
from conftest import Run
from hami.cli import main
from running import TIMEOUT

import hami_tools
from hami_tools.trace.convert import write_chrome
from hami_tools.trace.file import Slice, TraceFile, Track, packets, read_trace
from hami_tools.trace.profile import read_profile

GRAPH = {"a": {"backend": "S[Identity,Identity]", "max": 4, "next": "b"}, "b": {"backend": "Identity"}}


def record_run(path: Path) -> bytes:
    """Run one request in a process of its own, and return its trace."""
    command = [sys.executable, "-m", "hami", "run", "Identity", "--text", "x", "--trace", path]
    subprocess.run(command, check=True, timeout=TIMEOUT)
    return path.read_bytes()


@pytest.fixture
def recorded(tmp_path: Path) -> Callable[..., TraceFile]:
    """Run requests in a pipe and return its trace."""

    def record(source: Any, requests: list[dict[str, Any]]) -> TraceFile:
        with hami.pipe(source) as pipe, pipe.trace(tmp_path / "t.pftrace"):
            pipe(requests)
        return read_trace(tmp_path / "t.pftrace")

    return record


@pytest.mark.parametrize("field", [b"\x40", b"\x0a", b""])
def test_a_number_without_end_is_an_error_of_its_tenth_byte(field: bytes, tmp_path: Path) -> None:
    """Each further byte would take as long as all bytes before it."""
    endless = field + b"\xff" * 1_000_000
    size, packet = len(endless), bytearray(b"\x0a")
    while size > 0x7F:
        packet.append(size & 0x7F | 0x80)
        size >>= 7
    (tmp_path / "t").write_bytes(bytes([*packet, size]) + endless)
    with pytest.raises(hami.ConfigError, match="a number of more than 10 bytes"):
        read_trace(tmp_path / "t")


def test_only_a_regular_file_is_read_as_a_trace(tmp_path: Path) -> None:
    """A FIFO would wait for a writer, and a device may have no end."""
    os.mkfifo(tmp_path / "fifo")
    for path in (tmp_path / "fifo", Path("/dev/zero"), tmp_path):
        with pytest.raises(hami.ConfigError, match="is not a file"):
            read_trace(path)
        with pytest.raises(hami.ConfigError, match="is not a file"):
            read_profile(path)


def test_the_joined_files_of_two_processes_are_one_timeline(tmp_path: Path) -> None:
    joined = tmp_path / "joined"
    joined.write_bytes(record_run(tmp_path / "a") + record_run(tmp_path / "b"))
    found = read_trace(joined)
    assert len(found.processes) == 2
    requests = found.of("request")
    assert {found.tracks[each.track].process for each in requests} == found.processes.keys()
    flows = [set(each.flows) for each in requests]
    assert not flows[0] & flows[1]
    write_chrome(found, tmp_path / "chrome.json")
    events = json.loads((tmp_path / "chrome.json").read_text("utf-8"))["traceEvents"]
    assert {event["pid"] for event in events} == found.processes.keys()


def test_a_packet_that_was_cut_off_costs_no_more_than_itself(tmp_path: Path) -> None:
    first, second = record_run(tmp_path / "a"), record_run(tmp_path / "b")
    *whole, last = list(packets(first))
    end = len(first) - len(last)
    head = end - next(number for number in range(1, 9) if list(packets(first[: end - number])) == whole)
    for cut in (head + 1, end, end + 1, len(first) - 1):
        (tmp_path / "joined").write_bytes(first[:cut] + second)
        assert list(packets(first[:cut] + second)) == [*whole, *packets(second)], cut
        assert len(read_trace(tmp_path / "joined").processes) == 2


def test_the_traces_of_child_processes_are_part_of_that_of_their_program(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    record_run(tmp_path / "run.5.pftrace")  # of an earlier run
    record_run(tmp_path / "run.pftrace")
    for number in (6, 7):
        child = record_run(tmp_path / f"run.{number}.pftrace")
    (tmp_path / "run.7.pftrace").write_bytes(child[:-1])
    (tmp_path / "run.8.pftrace").write_bytes(b"")  # it was killed at once
    (tmp_path / "run.x.pftrace").write_bytes(child)
    chrome = tmp_path / "chrome.json"
    command = ["trace", "convert", str(tmp_path / "run.pftrace"), "--chrome", str(chrome)]
    assert main(command) == 0
    events = json.loads(chrome.read_text("utf-8"))["traceEvents"]
    expected = {read_trace(tmp_path / f"run.{part}pftrace").started for part in ("", "6.", "7.")}
    assert len({event["pid"] for event in events}) == len(expected) == 3
    assert 'left out: "' in (shown := capsys.readouterr().err)
    assert 'run.8.pftrace" is empty' in shown


def test_a_timer_of_the_program_is_a_slice(tmp_path: Path) -> None:
    with (
        hami.pipe("Identity") as pipe,
        pipe.trace(tmp_path / "t"),
        hami_tools.timer("outer"),
        hami_tools.timer("inner"),
    ):
        pipe({"data": 1})
    inner, outer = sorted(read_trace(tmp_path / "t").of("timer"), key=lambda each: each.duration or 0)
    assert (inner.name, outer.name) == ("inner", "outer")
    assert outer.start <= inner.start


def test_convert_writes_the_trace_event_format(hami_command: Run, tmp_path: Path) -> None:
    file = tmp_path / "t.pftrace"
    hami_command("run", "S[Identity,Identity]", "--data", "1", "--data", "2", "--trace", str(file))
    done = hami_command("trace", "convert", str(file), "--chrome", str(tmp_path / "t.json"), "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {"chrome": str(tmp_path / "t.json"), "tensorboard": None}
    events = json.loads((tmp_path / "t.json").read_text("utf-8"))["traceEvents"]
    complete = [event for event in events if event["ph"] == "X"]
    assert {"S", "Identity"} <= {event["name"] for event in complete}
    assert all(event["dur"] >= 0 for event in complete)
    assert sum(event["ph"] == "b" and event["name"] == "request" for event in events) == 2
    assert sum(event["ph"] == "s" for event in events) == 2


def test_operators_of_an_engine_are_on_the_clock_of_the_timeline(hami_command: Run, tmp_path: Path) -> None:
    file = tmp_path / "t.pftrace"
    hami_command("run", "Identity", "--data", "1", "--trace", str(file))
    node = {"cat": "Node", "pid": 7, "tid": 8, "dur": 31, "ts": 24, "ph": "X", "name": "MatMul", "args": {}}
    clock = {"ph": "M", "name": "hami_clock", "pid": 7, "tid": 0, "args": {"monotonic_ns": 5_000_000}}
    fences = [{**node, "name": f"MatMul_fence_{side}", "dur": 0} for side in ("before", "after")]
    (tmp_path / "engine.json").write_text(json.dumps([clock, node, *fences]))
    options = ("--profile", str(tmp_path / "engine.json"))
    done = hami_command("trace", "convert", str(file), "--chrome", str(tmp_path / "t.json"), *options)
    assert done.returncode == 0, done.stderr
    events = json.loads((tmp_path / "t.json").read_text("utf-8"))["traceEvents"]
    assert [event for event in events if "MatMul" in event["name"]] == [{**node, "ts": 5024.0}]
    assert any(event["name"] == "Identity" for event in events)


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("", "is not a complete profile"),
        ("[1]", "is not a complete profile"),
        ("[]", "does not say when it began"),
        (
            json.dumps(
                [
                    {"name": "hami_clock", "ph": "M", "args": {"monotonic_ns": 10**400}},
                    {"name": "x", "ph": "X", "ts": 1},
                ]
            ),
            "is not a complete profile",
        ),
    ],
)
def test_a_file_without_a_profile_is_an_error(content: str, text: str, hami_command: Run, tmp_path: Path) -> None:
    file = tmp_path / "t.pftrace"
    hami_command("run", "Identity", "--data", "1", "--trace", str(file))
    (tmp_path / "engine.json").write_text(content)
    options = ("--profile", str(tmp_path / "engine.json"))
    done = hami_command("trace", "convert", str(file), "--chrome", str(tmp_path / "t.json"), *options)
    assert (done.returncode, text in done.stderr) == (1, True), done.stderr


@pytest.mark.parametrize("content", [b"\x08\x01", b"not a trace", b"\x0a\x02\x5a\x7f"])
def test_a_file_that_is_no_trace_is_an_error(content: bytes, hami_command: Run, tmp_path: Path) -> None:
    (tmp_path / "t").write_bytes(content)
    done = hami_command("trace", "convert", str(tmp_path / "t"), "--chrome", str(tmp_path / "t.json"))
    assert done.returncode == 1
    assert "is not a trace of hami" in done.stderr


@pytest.mark.parametrize("size", [b"\xff" * 4 + b"\x07", b"\xff" * 8 + b"\x7f", b"\xff" * 9 + b"\x7f"])
def test_the_size_of_a_packet_may_be_any_number(size: bytes, tmp_path: Path) -> None:
    whole, further = record_run(tmp_path / "a"), record_run(tmp_path / "b")
    found = list(packets(whole))
    assert list(packets(whole + b"\x0a" + size + b"abc")) == found
    assert list(packets(whole + b"\x0a" + size + b"abc" + further)) == [*found, *packets(further)]


@pytest.mark.parametrize(("kept", "text"), [(0, "is empty"), (9, "ends in its first packets")])
def test_a_file_without_a_packet_is_an_error(kept: int, text: str, hami_command: Run, tmp_path: Path) -> None:
    file = tmp_path / "t.pftrace"
    hami_command("run", "Identity", "--data", "1", "--trace", str(file))
    file.write_bytes(file.read_bytes()[:kept])
    done = hami_command("trace", "convert", str(file), "--chrome", str(tmp_path / "t.json"))
    assert (done.returncode, f'"{file}" {text}: it is not a trace of hami' in done.stderr) == (1, True), done.stderr
    assert not (tmp_path / "t.json").exists()


def test_flows_of_a_process_with_a_high_number_stay_apart_in_javascript(tmp_path: Path) -> None:
    flows = [(4_194_303 << 38) + number for number in (1, 2)]
    slices = [Slice("x", "batch", 1, start, 1, [flow]) for start, flow in enumerate(flows)]
    write_chrome(TraceFile({4_194_303: "python"}, {1: Track("t", 4_194_303, 5)}, slices), tmp_path / "chrome.json")
    events = json.loads((tmp_path / "chrome.json").read_text("utf-8"), parse_int=float)["traceEvents"]
    assert len({event["id"] for event in events if event["ph"] == "s"}) == 2


def test_convert_without_a_target_is_an_error(hami_command: Run, tmp_path: Path) -> None:
    done = hami_command("trace", "convert", str(tmp_path / "t"))
    assert done.returncode == 1
    assert "--chrome OUT or --tensorboard DIR" in done.stderr


def test_tensorboard_loads_the_scalars_and_histograms(recorded: Callable[..., TraceFile], tmp_path: Path) -> None:
    pytest.importorskip("tensorboard", reason="the package tensorboard is not installed")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    from hami_tools.trace.convert import write_tensorboard

    write_tensorboard(recorded(GRAPH, [{"data": number} for number in range(6)]), tmp_path / "tb")
    loaded = EventAccumulator(str(tmp_path / "tb"))
    loaded.Reload()
    assert {"latency_ms", "requests_per_second", "queue_ms/a", "batch_size/a"} <= set(loaded.Tags()["scalars"])
    assert sum(point.value for point in loaded.Scalars("requests_per_second")) == 6
    (histogram,) = loaded.Histograms("latency_ms/all")
    assert histogram.histogram_value.num == 6


def test_the_profiler_of_tensorboard_shows_the_trace(recorded: Callable[..., TraceFile], tmp_path: Path) -> None:
    for package in ("torch_tb_profiler", "tensorboard"):
        pytest.importorskip(package, reason=f"the package {package} is not installed")
    from hami_tools.trace.convert import write_tensorboard

    write_tensorboard(recorded(GRAPH, [{"data": 1}]), tmp_path / "tb")
    script = """
        import sys
        from torch_tb_profiler.io.cache import Cache
        from torch_tb_profiler.profiler.loader import RunLoader

        if __name__ == "__main__":
            run = RunLoader("run", sys.argv[1], Cache()).load()
            print([view.name for view in run.profiles["hami", "default"].views])
        """
    (tmp_path / "load.py").write_text(textwrap.dedent(script), "utf-8")
    command = [sys.executable, str(tmp_path / "load.py"), str(tmp_path / "tb")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT, check=False)
    assert "'trace'" in done.stdout, done.stderr
