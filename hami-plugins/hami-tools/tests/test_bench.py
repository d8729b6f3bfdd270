"""`hami bench`: loads, figures, failures, stored results, and wrong arguments."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import hami
import pytest
from hami.cli import main
from hami.observe import Histogram
from running import each

from hami_tools.bench.load import Load, poisson
from hami_tools.bench.point import Point, is_stable, measure, measure_until_stable

Output = tuple[int, str, str]
SHORT = ("--seconds", "0.02")


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Call `hami bench` in an empty folder; return status, output and errors."""
    monkeypatch.chdir(tmp_path)

    def call(*arguments: str) -> Output:
        try:
            status = main(["bench", *arguments])
        except SystemExit as end:
            status = int(end.code or 0)
        printed = capsys.readouterr()
        return status, printed.out, printed.err

    return call


def divide(data: Any) -> float:
    return 1 / int(data)


@pytest.fixture
def divides() -> str:
    each(divide, "TestBenchDivide")
    return "TestBenchDivide"


def point(throughput: float = 100.0, p99: float = 5.0, **values: Any) -> Point:
    """Return a point of one second."""
    latency = Histogram(p99 * throughput, [(p99, p99, int(throughput))])
    fixed = {"load": Load(), "elapsed_s": 1.0, "completed": int(throughput), "good": int(throughput)}
    rest = {"failed": {}, "examples": {}, "late_ms": 0.0, "cpu_s": 0.5, "rss_mib": 10.0, "before": {}, "after": {}}
    return Point(**{**fixed, "latency_ms": latency, **rest, **values})


def test_the_table_has_one_row_for_each_load(call: Any) -> None:
    status, out, err = call("Identity", "--text", "a", "--clients", "1,4", "--rate", "500", "--slo", "1s", *SHORT)
    lines = out.splitlines()
    assert (status, err) == (0, "")
    assert lines[0].split("  ")[0] == "load"
    for column in ("within 1000 ms", "p50 ms", "p99.9 ms", "CPU ms", "RSS MiB", "failed"):
        assert column in lines[0]
    assert [line.split("  ")[0] for line in lines[1:4]] == ["clients 1", "clients 4", "rate 500"]


def test_json_has_the_figures_of_each_load_and_the_statistics(call: Any) -> None:
    status, out, _ = call("Identity", "--data", "[1]", "--clients", "2", "--json", "--slo", "10s", *SHORT)
    found = json.loads(out)
    measured = found["points"][0]
    assert status == 0
    assert measured["load"] == "clients 2"
    assert measured["completed"] == measured["latency_ms"]["count"] > 0
    assert measured["goodput"] == measured["throughput"] == measured["completed"] / measured["seconds"]
    assert measured["rss_mib"] > 1
    assert found["stats"]["default"]["completed"] >= measured["completed"]
    assert found["failing_inputs"] == found["worse"] == []


def test_files_of_a_folder_are_inputs(call: Any, divides: str) -> None:
    Path("inputs").mkdir()
    for number in (1, 2):
        Path(f"inputs/{number}.txt").write_text(str(number))
    status, out, _ = call(divides, "--input", "inputs", "--clients", "1", "--json", *SHORT)
    assert status == 0
    assert json.loads(out)["points"][0]["failed"] == {}


def test_inputs_that_fail_are_counted_by_kind_and_named(call: Any, divides: str) -> None:
    data = ("--data", "1", "--data", "0", "--text", "x")
    status, out, _ = call(divides, *data, "--clients", "2", "--json", "--seconds", "0.5", "--no-ceiling")
    found = json.loads(out)
    measured = found["points"][0]
    assert status == 1
    assert set(measured["failed"]) == {"ZeroDivisionError", "ValueError"}
    assert measured["completed"] == measured["latency_ms"]["count"] > 0
    assert [entry["input"] for entry in found["failing_inputs"]] == ["--text", "--data"]


@pytest.mark.parametrize("more", [(), ("--no-ceiling",)])
def test_a_measurement_of_requests_that_all_fail_stops_and_says_why(
    call: Any, divides: str, more: tuple[str, ...]
) -> None:
    status, out, err = call(divides, "--data", "0", "--text", "x", "--seconds", "60", *more)
    assert (status, out) == (1, "")
    assert "nothing is measured, because every request fails" in err
    assert "--data fails: ZeroDivisionError: division by zero" in err
    assert "--text fails: ValueError" in err


def test_an_input_that_cannot_be_read_is_reported_and_the_others_are_measured(call: Any) -> None:
    Path("page.txt").write_text("a")
    status, out, err = call("Identity", "--input", "page.txt", "--input", "missing.txt", "--clients", "1", *SHORT)
    assert status == 1
    assert "clients 1" in out
    assert err == "error: missing.txt: cannot be read: No such file or directory\n"
    status, out, err = call("Identity", "--input", "missing.txt")
    assert (status, out) == (1, "")
    assert "error: no input can be read" in err


def test_a_trace_runs_to_its_end(call: Any) -> None:
    Path("arrivals.txt").write_text("0.001\n0\n\n0.002\n")
    status, out, _ = call("Identity", "--text", "a", "--arrivals", "arrivals.txt", "--json")
    measured = json.loads(out)["points"][0]
    assert status == 0
    assert (measured["load"], measured["completed"]) == ("trace of 3", 3)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("0.1\nsoon\n", "line 2: expected seconds from 0 on, got 'soon'"),
        ("-1", "line 1"),
        ("nan", "line 1"),
        ("", "is empty"),
    ],
)
def test_a_trace_with_a_mistake_is_rejected(call: Any, content: str, message: str) -> None:
    Path("arrivals.txt").write_text(content)
    status, out, err = call("Identity", "--text", "a", "--arrivals", "arrivals.txt")
    assert (status, out) == (1, "")
    assert message in err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--seconds", "0"), "expected a time of more than 0, such as 20ms or 2s, got '0'"),
        (("--seconds", "1.2.3"), "expected a time"),
        (("--rate", "-5"), "expected requests per second, more than 0 and at most 1e+06, got '-5'"),
        (("--rate", "nan"), "expected requests per second"),
        (("--clients", "4,0"), "expected a number from 1 to 2147483647, got '0'"),
        (("--slo=-2ms",), "expected a time"),
        (("--tolerance", "much"), "expected a percentage such as 5%, got 'much'"),
    ],
)
def test_values_out_of_range_are_wrong_usage(call: Any, arguments: tuple[str, ...], message: str) -> None:
    status, out, err = call("Identity", "--text", "a", *arguments)
    assert (status, out) == (2, "")
    assert message in err


@pytest.mark.parametrize("option", ["--output", "--html", "--trace"])
@pytest.mark.parametrize("path", ["no/folder/file", "folder"])
def test_a_file_that_cannot_be_written_is_refused_before_anything_is_measured(
    call: Any, option: str, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("folder").mkdir()
    monkeypatch.setattr("hami_tools.bench.command.measure", lambda *_: pytest.fail("it measures"))
    status, out, err = call("Identity", "--text", "a", "--no-ceiling", option, path)
    assert (status, out) == (1, "")
    assert path in err
    assert "a folder that exists and can be written" in err


def test_a_node_that_does_not_exist_is_an_error(call: Any) -> None:
    status, _, err = call("Identity", "--text", "a", "--node", "other")
    assert (status, err) == (1, 'error: --node takes a node of the pipeline, which has default; got "other"\n')


def test_without_inputs_nothing_is_measured(call: Any) -> None:
    status, _, err = call("Identity")
    assert status == 1
    assert "there is no input" in err


def test_a_load_that_is_worse_than_the_stored_one_fails(call: Any) -> None:
    arguments = ("Identity", "--text", "a", "--clients", "1", *SHORT)
    assert call(*arguments, "--output", "before.json")[0] == 0
    stored = json.loads(Path("before.json").read_text())
    stored["points"][0]["latency_ms"]["p99"] = 1e9
    stored["points"][0]["throughput"] = 1e-3
    Path("before.json").write_text(json.dumps(stored))
    assert call(*arguments, "--against", "before.json")[0] == 0
    stored["points"][0]["throughput"] = 1e12
    Path("before.json").write_text(json.dumps(stored))
    status, out, _ = call(*arguments, "--against", "before.json")
    assert status == 1
    assert "worse: clients 1: " in out
    assert "per second, before 1e+06 M" in out
    assert call(*arguments, "--against", "before.json", "--tolerance", "100%")[0] == 0


@pytest.mark.parametrize("content", ["{}", "[1]", "no json", '{"points": [{"load": "clients 1"}]}'])
def test_a_file_that_is_not_a_result_is_rejected_before_anything_runs(call: Any, content: str) -> None:
    Path("other.json").write_text(content)
    status, out, err = call("Identity", "--text", "a", "--against", "other.json")
    assert (status, out) == (1, "")
    assert "other.json is not a result of hami bench; write one with hami bench … --output FILE" in err


def test_output_into_head_ends_without_an_error(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "hami", "bench", "Identity", "--text", "a", "--clients", "1", *SHORT]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tmp_path)
    assert process.stdout is not None
    process.stdout.close()
    assert process.stderr is not None
    with process.stderr as errors:
        assert errors.read() == ""
    assert process.wait() == 1


def test_a_terminal_of_20_columns_shows_one_figure_in_each_line(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setenv("COLUMNS", "20")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr("sys.stdout", terminal := Terminal())
    assert main(["bench", "Identity", "--text", "a", "--clients", "1,2", *SHORT]) == 0
    lines = terminal.getvalue().splitlines()
    assert lines[0] == "load: clients 1"
    assert "load: clients 2" in lines
    assert max(map(len, lines)) <= 20


def test_poisson_arrivals_are_repeatable_and_have_the_rate() -> None:
    arrivals = poisson(1000.0, 10.0, seed=1)
    assert arrivals == poisson(1000.0, 10.0, seed=1) != poisson(1000.0, 10.0, seed=2)
    assert list(arrivals) == sorted(arrivals)
    assert abs(len(arrivals) - 10_000) < 500  # five standard deviations
    assert len(poisson(0.001, 0.001)) == 1


def test_warm_up_is_not_measured() -> None:
    with hami.pipe("Identity") as pipe:
        measured = measure(pipe, [{"data": 1}], Load(clients=2), 0.02)
        calls = measured.after["default"].completed - measured.before["default"].completed
    assert measured.before["default"].completed > 0
    assert calls == measured.completed


def test_windows_are_repeated_until_they_agree() -> None:
    assert is_stable([point(100), point(104), point(102)], 0.05)
    assert not is_stable([point(100), point(120), point(110)], 0.05)
    assert not is_stable([point(p99=5.0), point(p99=9.0), point()], 0.05)
    assert not is_stable([point(), point(latency_ms=Histogram()), point()], 0.05)
    with hami.pipe("Identity") as pipe:
        three = measure_until_stable(pipe, [{"data": 1}], Load(), 0.005, None, tolerance=1.0)
        ten = measure_until_stable(pipe, [{"data": 1}], Load(), 0.005, None, tolerance=0.0)
    assert three.elapsed_s >= 0.015
    assert three.completed == three.latency_ms.count
    assert ten.after["default"].completed > ten.completed


def test_a_result_gives_the_numbers_of_a_graph(call: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert call("Identity", "--text", "a", "--clients", "1", "--output", "result.json", *SHORT)[0] == 0
    assert main(["graph", "Identity", "--stats", "result.json"]) == 0
    assert " completed" in capsys.readouterr().out
