"""ci/gpu reports results, also when a program fails or does not end."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "ci" / "gpu"


@pytest.fixture(scope="module")
def gpu():
    loader = importlib.machinery.SourceFileLoader("ci_gpu", str(SCRIPT))
    spec = importlib.util.spec_from_loader("ci_gpu", loader)
    assert spec
    module = importlib.util.module_from_spec(spec)
    sys.modules["ci_gpu"] = module  # its dataclasses look there
    loader.exec_module(module)
    yield module
    del sys.modules["ci_gpu"]


def run(gpu, code: str, limit: float = 60):
    return gpu.run("it", [sys.executable, "-u", "-c", code], {}, Path.cwd(), limit)


def test_output_of_a_program_is_kept_and_shown(gpu, capsys):
    outcome = run(gpu, "print('RESULT {\"value\": 1}'); print('more'); raise SystemExit(3)")
    assert (outcome.lines, outcome.code, outcome.ending) == (['RESULT {"value": 1}', "more"], 3, "exited with 3")
    assert outcome.tagged("RESULT ") == [{"value": 1}]
    assert "more\n" in capsys.readouterr().out


def test_a_program_that_does_not_end_is_stopped(gpu):
    outcome = run(gpu, "import threading; print('so far'); threading.Event().wait()", limit=0.5)
    assert outcome.code is None
    assert outcome.ending == "was stopped at its time limit"


MET = {"metric": "a / b", "value": 0.97, "bound": ">= 0.95", "holds": True, "details": {"per_s": {"a": 9}}}
MISSED = {"metric": "c", "value": 20, "bound": "<= 16", "holds": False, "details": {}}


def test_the_report_lists_results_missed_bounds_and_incomplete_benchmarks(gpu, tmp_path):
    report = gpu.Report(tmp_path / "gpu" / "results.md", ["hami-torch", "ab", "d", "e"])
    report.machine = {"GPU": "H100"}
    report.add("d", good=False, incomplete=["`d` exited with 1"])
    report.add("ab", good=False, results=[MET, MISSED])
    report.add("hami-torch", good=True, tests=["* hami-torch: 3 passed"])
    text = report.path.read_text()
    for line in (
        "* GPU: H100",
        "* hami-torch: 3 passed",
        "| a / b | 0.97 | >= 0.95 | met |",
        "| c | 20 | <= 16 | MISSED |",
        "* a / b: per s: a 9",
        "* `d` exited with 1",
        "* e",
    ):
        assert line in text.splitlines()


def test_reports_of_several_runs_are_merged(gpu, tmp_path):
    for number, gpu_name, metric in ((1, "H100", MISSED), (2, "H200", MET)):
        report = gpu.Report(tmp_path / f"{number}.md")
        report.machine = {"GPU": gpu_name, "cores": "16"}
        report.add("fusion", good=metric["holds"], results=[metric])
        report.add(f"only-{number}", good=True, tests=[f"* only-{number}: 3 passed"])
    files = [str(tmp_path / f"{number}.json") for number in (1, 2)]
    command = [sys.executable, str(SCRIPT), "--merge", *files, "--results", str(tmp_path / "all.md")]
    assert subprocess.run(command, check=False).returncode == 0
    lines = (tmp_path / "all.md").read_text().splitlines()
    assert {"* GPU: H100; in another run: H200", "* cores: 16", "* only-1: 3 passed", "* only-2: 3 passed"} <= {*lines}
    assert "| a / b | 0.97 | >= 0.95 | met |" in lines  # of the later run
    assert not any("MISSED" in line for line in lines)


def test_the_parts_have_every_step_once_and_take_about_the_same_time(gpu):
    parts = [gpu.chosen("", f"{number}/3") for number in (1, 2, 3)]
    assert sorted(step for part in parts for step in part) == sorted(gpu.SECONDS)
    times = [sum(gpu.SECONDS[step] for step in part) for part in parts]
    assert max(times) - min(times) <= max(gpu.SECONDS.values()) / 2


def test_steps_are_chosen_by_name(gpu):
    assert gpu.chosen("fusion,hami-cuda", "") == ["hami-cuda", "fusion"]
    assert gpu.chosen("tests", "") == list(gpu.TESTS)
    assert {*gpu.chosen("tests,benchmarks", "")} == {*gpu.SECONDS}
    with pytest.raises(SystemExit, match='unknown step "fuson"'):
        gpu.chosen("fuson", "")
    for part in ("0/2", "3/2", "half"):
        with pytest.raises(SystemExit, match="such as 1/2"):
            gpu.chosen("", part)


@pytest.mark.parametrize(
    ("ends", "says"),
    [
        ("raise SystemExit(3)", "`it` exited with 3; results above: 1"),
        ("import threading; threading.Event().wait()", "`it` was stopped at its time limit; results above: 1"),
        ("", None),
    ],
)
def test_a_benchmark_that_fails_after_a_result_is_incomplete(gpu, tmp_path, ends, says):
    result = {"metric": "a / b", "value": 1.5, "bound": ">= 1.0", "holds": True, "details": {}}
    (tmp_path / "it.py").write_text(f"print('RESULT ' + {json.dumps(json.dumps(result))}, flush=True)\n{ends}\n")
    report = gpu.Report(tmp_path / "results.md")
    gpu.run_benchmark("it", tmp_path, report, {}, limit=5 if says and "limit" in says else 60)
    assert report.steps["it"] == {
        "good": says is None,
        "tests": [],
        "results": [result],
        "incomplete": [says] if says else [],
    }


def test_tests_are_counted_by_outcome(gpu, tmp_path):
    report = tmp_path / "report.xml"
    report.write_text(
        "<testsuites><testsuite>"
        '<testcase classname="a" name="one"/>'
        '<testcase classname="a" name="two"><failure message="no"/></testcase>'
        '<testcase classname="a" name="three"><skipped message="no GPU"/></testcase>'
        "</testsuite></testsuites>"
    )
    counts = {"passed": 1, "failed": 1, "skipped": 1}
    assert gpu.counted(report) == (counts, ["a::two"], [("a::three", "no GPU")])
    assert gpu.counted(tmp_path / "none.xml")[0] == {"passed": 0, "failed": 0, "skipped": 0}


def test_tests_that_were_skipped_for_one_reason_are_one_line(gpu):
    skipped = [("a::one", "no GPU"), ("a::two", "no wheel"), ("a::three", "no GPU")]
    assert gpu.grouped(skipped) == ["  * skipped: 2 tests: no GPU", "  * skipped: a::two: no wheel"]


def test_a_folder_without_wheels_is_rejected(gpu, tmp_path):
    with pytest.raises(SystemExit, match="no wheels in"):
        gpu.install(tmp_path, tmp_path / "site")
