"""`hami bench`: comparisons, the scenarios of MLPerf LoadGen, the plot and the web page."""

from __future__ import annotations

import builtins
import json
import math
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import hami
import pytest
from hami.cli import main
from running import each

from hami_tools.bench.comparison import compare_results, compare_throughput, ratio_of
from hami_tools.bench.load import Load
from hami_tools.bench.scenarios import SCENARIOS, run_scenario
from hami_tools.bench.tables import comparison_lines
from hami_tools.benchmark_commands import SCENARIOS as CHOICES
from hami_tools.differences import compare

FAST = ("--seconds", "0.05", "--clients", "1")
HOSTILE = "<script>alert(1)</script>"


@pytest.fixture(scope="module")
def half() -> str:
    each(lambda data: data / 2, "TestModesHalf")
    each(lambda data: data / 2 + (0.25 if data == 3 else 0.0), "TestModesNearlyHalf")
    return "TestModesHalf"


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    try:
        status = main(["bench", *arguments])
    except SystemExit as end:
        status = int(end.code or 0)
    printed = capsys.readouterr()
    return status, printed.out, printed.err


def test_a_comparison_has_a_ratio_with_an_interval_and_the_difference_of_the_results(
    capsys: pytest.CaptureFixture[str], half: str
) -> None:
    arguments = (half, "--compare", "TestModesNearlyHalf", "--data", "2", "--data", "3", *FAST, "--rounds", "3")
    status, out, _ = run(capsys, *arguments, "--json")
    found = json.loads(out)
    ratio = found["ratios"][0]
    assert status == 0
    assert ratio["rounds"] == 3
    assert 0 < ratio["low"] <= ratio["ratio"] <= ratio["high"]
    assert (found["difference"]["equal"], found["difference"]["inputs"]) == (1, 2)
    assert found["difference"]["largest"] == 0.25
    assert len(found["points"]) == len(found["other_points"]) == 1
    status, out, _ = run(capsys, *arguments)
    assert status == 0
    assert out.splitlines()[0] == "throughput of TestModesNearlyHalf / TestModesHalf"
    assert [line for line in out.splitlines() if line in ("TestModesHalf", "TestModesNearlyHalf")] == [
        "TestModesHalf",
        "TestModesNearlyHalf",
    ]
    assert "1 of 2 results are equal; numbers differ by at most 0.25" in out


def test_a_failure_of_the_other_pipe_fails_the_comparison(capsys: pytest.CaptureFixture[str], half: str) -> None:
    each(lambda data: 1 / 0, "TestModesFails")
    status, out, _ = run(capsys, half, "--compare", "TestModesFails", "--data", "2", *FAST, "--rounds", "2")
    assert status == 1
    assert "input 1: a result and ZeroDivisionError" in out
    assert "failed with ZeroDivisionError" in out


def test_results_of_which_none_exists_are_not_equal(capsys: pytest.CaptureFixture[str]) -> None:
    each(lambda data: 1 / 0, "TestModesFailsToo")
    arguments = ("TestModesFailsToo", "--compare", "TestModesFailsToo", "--data", "2", "--data", "3")
    status, out, _ = run(capsys, *arguments, *FAST, "--rounds", "2")
    assert status == 1
    assert "0 of 2 results are equal, and 2 fail in both" in out
    assert "input 1 fails in both: ZeroDivisionError: division by zero" in out


def test_both_pipes_see_the_same_inputs_alternately(half: str) -> None:
    with hami.pipe(half) as one, hami.pipe(half) as other:
        ratio, first, second = compare_throughput((one, other), [{"data": 4}], Load(), 0.02, rounds=2)
        assert compare_results((one, other), [{"data": 4}, {"data": 6}]).as_dict() == {
            "inputs": 2,
            "equal": 2,
            "failed": 0,
            "largest": 0.0,
            "other": [],
        }
    assert ratio.rounds == 2
    assert first.completed == first.latency_ms.count > 0
    assert second.completed == second.latency_ms.count > 0


@pytest.mark.parametrize(
    ("low", "high", "shown"), [(0.9, 1.1, True), (1.0, 1.2, True), (1.01, 1.2, False), (0.5, 0.99, False)]
)
def test_an_interval_that_contains_1_shows_no_difference(low: float, high: float, shown: bool) -> None:
    ratio = {"load": "clients 1", "ratio": (low * high) ** 0.5, "low": low, "high": high, "rounds": 3}
    difference = {"equal": 1, "inputs": 1, "failed": 0, "largest": 0.0, "other": []}
    found = {"source": "a", "compared_with": "b", "ratios": [ratio], "difference": difference}
    assert list(comparison_lines(found))[1].endswith(", no difference shown") is shown


def test_the_interval_is_that_of_students_distribution() -> None:
    logs = [math.log(value) for value in (1.0, 1.1, 1.21)]
    ratio = ratio_of(logs)
    assert ratio.ratio == pytest.approx(1.1)
    assert ratio.high == pytest.approx(1.1 * math.exp(4.303 * math.log(1.1) / math.sqrt(3)))
    assert ratio_of(logs[:1]).high == math.inf
    assert ratio_of([]).rounds == 0
    assert math.isfinite(ratio_of([-400.0, 400.0]).high)


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        (1, 1, (0.0, "")),
        (math.nan, math.nan, (0.0, "")),
        ([1, 2.5], [1, 2.0], (0.5, "")),
        ({"a": [1]}, {"a": [4]}, (3.0, "")),
        ([1], [1, 2], (0.0, "lengths 1 and 2")),
        ({"a": 1}, {"b": 1}, (0.0, "keys ['a'] and ['b']")),
        ("cat", "dog", (0.0, "'cat' and 'dog'")),
        (ValueError("a"), ValueError("b"), (0.0, "")),
    ],
)
def test_results_are_compared_by_value(one: Any, other: Any, expected: tuple[float, str]) -> None:
    assert compare(one, other)[::2] == expected


def test_arrays_are_compared_by_shape_and_value() -> None:
    numpy = pytest.importorskip("numpy")
    assert compare(numpy.zeros(3), numpy.array([0.0, 0.5, 0.25]))[::2] == (0.5, "")
    assert compare(numpy.zeros(3), numpy.zeros((3, 1)))[::2] == (0.0, "shapes (3,) and (3, 1)")


@pytest.mark.parametrize(
    ("scenario", "metric", "load"),
    [
        ("single-stream", "p90 latency", "clients 1"),
        ("multi-stream", "p99 latency of a query", "clients 1, 8 per call"),
        ("offline", "throughput", "1 x "),
        ("server", "highest rate with p99 within 10000 ms", "rate "),
    ],
)
def test_each_scenario_has_its_load_and_its_metric(scenario: str, metric: str, load: str) -> None:
    each(lambda data: sum(range(20_000)), "TestModesWork")
    with hami.pipe("TestModesWork") as pipe:
        result = run_scenario(scenario, pipe, [{"data": 1}], 0.05, 10.0)
    assert result.metric == metric
    assert str(result.point.load).startswith(load)
    assert result.value > 0
    assert not result.point.failed
    assert SCENARIOS == CHOICES


def test_a_server_that_never_meets_the_objective_has_the_rate_0() -> None:
    each(lambda data: sum(range(20_000)), "TestModesWork")
    with hami.pipe("TestModesWork") as pipe:
        result = run_scenario("server", pipe, [{"data": 1}], 0.02, 1e-9)
    assert result.value == 0


def test_scenarios_are_printed(capsys: pytest.CaptureFixture[str], half: str) -> None:
    arguments = (half, "--data", "2", "--seconds", "0.02", "--scenario", "single-stream", "--scenario", "multi-stream")
    status, out, _ = run(capsys, *arguments)
    assert status == 0
    assert "single-stream: p90 latency " in out
    assert "multi-stream: p99 latency of a query " in out
    assert json.loads(run(capsys, *arguments, "--json")[1])["scenarios"][0]["unit"] == "ms"


class Loads(HTMLParser):
    """Collects the tags of a page, and what it would load."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.loaded: list[str] = []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.loaded += [value or "" for name, value in attributes if name in ("src", "href", "xlink:href")]


def test_the_web_page_is_one_file_that_loads_nothing(
    capsys: pytest.CaptureFixture[str], half: str, tmp_path: Path
) -> None:
    place = tmp_path / "result.html"
    each(lambda data: data, HOSTILE_NAME := "TestModesEcho")
    status, _, _ = run(capsys, HOSTILE_NAME, "--text", HOSTILE, *FAST, "--html", str(place))
    text = place.read_text("utf-8")
    page = Loads()
    page.feed(text)
    assert status == 0
    assert page.loaded == []
    assert "script" not in page.tags
    for tag in ("svg", "table", "meter", "h1"):
        assert tag in page.tags
    assert "Ceiling: " in text
    assert "waiting for batches" in text or "host work" in text or "device idle" in text


def test_names_in_the_web_page_are_escaped() -> None:
    from hami_tools.bench.page import page

    with hami.pipe("Identity") as pipe:
        description = pipe.describe()
    found = {"source": HOSTILE, "explanation": [HOSTILE], "points": [], "description": description, "stats": {}}
    assert HOSTILE not in page(found)
    assert "&lt;script&gt;" in page(found)


def test_a_comparison_has_a_web_page(capsys: pytest.CaptureFixture[str], half: str, tmp_path: Path) -> None:
    place = tmp_path / "result.html"
    status, _, _ = run(capsys, half, "--compare", half, "--data", "2", *FAST, "--rounds", "2", "--html", str(place))
    assert status == 0
    assert "1 of 1 results are equal" in place.read_text("utf-8")


def test_a_plot_is_a_picture_of_the_loads(capsys: pytest.CaptureFixture[str], half: str, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    place = tmp_path / "out.png"
    assert run(capsys, half, "--data", "2", *FAST, "--plot", str(place))[0] == 0
    assert place.read_bytes().startswith(b"\x89PNG")
    status, _, err = run(capsys, half, "--data", "2", *FAST, "--plot", str(tmp_path / "out.doc"))
    assert status == 1
    assert "error: --plot " in err
    assert "not supported" in err


def test_without_matplotlib_a_plot_is_refused_before_anything_runs(
    capsys: pytest.CaptureFixture[str], half: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    imported = builtins.__import__

    def without(name: str, *rest: Any) -> Any:
        if name.startswith("matplotlib"):
            raise ImportError(name)
        return imported(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without)
    status, out, err = run(capsys, half, "--data", "2", *FAST, "--plot", str(tmp_path / "out.png"))
    assert (status, out) == (1, "")
    assert 'error: --plot needs matplotlib: pip install "hami-tools[plot]"' in err


@pytest.mark.parametrize("rounds", ["0", "1", "-3"])
def test_a_comparison_needs_two_rounds(capsys: pytest.CaptureFixture[str], half: str, rounds: str) -> None:
    status, _, err = run(capsys, half, "--data", "2", "--compare", half, f"--rounds={rounds}")
    assert status == 2
    assert "--rounds" in err
