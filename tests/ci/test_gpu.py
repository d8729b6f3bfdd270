"""ci/gpu reports results, also when a program fails or does not end."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import json
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


def test_the_report_lists_results_missed_bounds_and_incomplete_benchmarks(gpu, tmp_path):
    report = gpu.Report(tmp_path / "gpu" / "results.md")
    report.machine = {"GPU": "H100"}
    report.tests = ["* hami-torch: 3 passed"]
    report.results = [
        {
            "metric": "a / b",
            "value": 0.97,
            "bound": ">= 0.95",
            "holds": True,
            "details": {"per_s": {"a": 9}},
        },
        {"metric": "c", "value": 20, "bound": "<= 16", "holds": False, "details": {}},
    ]
    report.incomplete = ["`d` exited with 1"]
    report.write()
    text = report.path.read_text()
    for line in (
        "* GPU: H100",
        "* hami-torch: 3 passed",
        "| a / b | 0.97 | >= 0.95 | met |",
        "| c | 20 | <= 16 | MISSED |",
        "* a / b: per s: a 9",
        "* `d` exited with 1",
    ):
        assert line in text.splitlines()


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
    assert report.results == [result]
    assert report.incomplete == ([says] if says else [])
    assert report.good is (says is None)


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
    assert gpu.counted(report) == (counts, ["a::two"], ["a::three: no GPU"])
    assert gpu.counted(tmp_path / "none.xml")[0] == {"passed": 0, "failed": 0, "skipped": 0}


def test_a_folder_without_wheels_is_rejected(gpu, tmp_path):
    with pytest.raises(SystemExit, match="no wheels in"):
        gpu.install(tmp_path, tmp_path / "site")
