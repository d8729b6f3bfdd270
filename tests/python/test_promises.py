"""The programs of tests/reliability keep their promises, each for as short a time as it can be tried."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from running import TIMEOUT

FOLDER = Path(__file__).parents[1] / "reliability"


def test_the_measurements_have_a_row_for_each_promise_of_soak_and_for_no_other() -> None:
    soak = [sys.executable, str(FOLDER.parents[1] / "ci" / "soak"), "--list"]
    listed = subprocess.run(soak, capture_output=True, text=True, timeout=TIMEOUT, check=True).stdout
    table = (FOLDER / "results.md").read_text("utf-8").partition("\n## Promises\n")[2]
    names = [line.split()[0] for line in listed.splitlines()]
    assert names == [f"R{number}" for number in range(1, len(names) + 1)]
    assert re.findall(r"^\| (R\d+), ", table, re.MULTILINE) == names


def has_compiler() -> bool:
    return any(map(shutil.which, ("g++", "clang++", "c++")))


NEEDS = {
    **dict.fromkeys(("code_from_data", "surroundings"), ("hami_tools", "numpy", "onnx", "tokenizers")),
    "children": ("hami_process", "numpy"),
    "mixed": ("hami_serve", "grpc_health", "grpc_reflection"),
}
NEEDS_COMPILER = pytest.mark.skipif(not has_compiler(), reason="no compiler of C++ is installed")


@pytest.mark.parametrize(
    "name",
    [
        *("memory", "forks", "clocks", "crowd", "code_from_data", "surroundings", "mixed", "children"),
        pytest.param("interleavings", marks=NEEDS_COMPILER),
    ],
)
def test_a_promise_holds(name: str) -> None:
    for module in NEEDS.get(name, ()):
        pytest.importorskip(module)
    program = [sys.executable, str(FOLDER / f"{name}.py"), "--seconds", "0"]
    done = subprocess.run(program, capture_output=True, text=True, timeout=5 * TIMEOUT, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)


def test_free_threaded_python_is_compared_by_callers_and_required() -> None:
    program = [sys.executable, str(FOLDER / "free_threaded.py"), "--seconds", "0"]
    done = subprocess.run(program, capture_output=True, text=True, timeout=5 * TIMEOUT, check=False)
    if getattr(sys, "_is_gil_enabled", lambda: True)():
        assert (done.returncode, done.stdout) == (1, "")
        assert done.stderr.startswith(f"broken: the GIL is on in {sys.executable}; free-threaded CPython is needed")
        pipe = "hami.pipe('FreeThreadedSum')"
        measure = f"from free_threaded import compared, hami; pipe = {pipe}; assert compared(pipe, pipe, 0)[0] > 0"
        subprocess.run([sys.executable, "-c", measure], cwd=FOLDER, timeout=5 * TIMEOUT, check=True)
    else:
        assert (done.returncode, done.stderr) == (0, "")
        assert json.loads(done.stdout)["calls/s of one"] > 0


def test_a_promise_that_breaks_in_a_thread_is_broken() -> None:
    program = """
import threading
import promise

def run(seconds, strict):
    thread = threading.Thread(target=promise.keep, args=(False, "an answer is wrong"))
    thread.start()
    thread.join()
    return {"answers": 1}

promise.main(run, "answers are right")
"""
    done = subprocess.run([sys.executable, "-c", program], cwd=FOLDER, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.endswith("\nbroken: a thread ended by Broken('broken: an answer is wrong')\n")


def test_a_sample_breaks_a_promise_only_if_it_is_hardly_by_chance() -> None:
    cases = [(0, 20, 0.15), (6, 20, 0.15), (7, 20, 0.15), (3, 3, 0.5), (5, 5, 0.5), (4, 5, 0.5)]
    cases += [(600, 4000, 0.15), (660, 4000, 0.15), (0, 0, 0.5)]  # as many as need large numbers, and none
    measure = f"import promise; print([promise.shows_more(*each) for each in {cases}])"
    done = subprocess.run([sys.executable, "-c", measure], cwd=FOLDER, capture_output=True, text=True, check=True)
    assert done.stdout == "[False, False, True, False, True, False, False, True, False]\n"


def test_bad_streams_are_tried_in_enough_pairs_of_phases_to_show_something() -> None:
    for module in ("hami_vision", "cv2", "numpy"):
        pytest.importorskip(module)
    measure = """
from promise import shows_more
from streams import PHASE_S, length_of_phase

for seconds in (60.0, 86.0, 239.0, 241.0, 3600.0):
    pairs = seconds / length_of_phase(seconds) / 2
    assert abs(pairs - round(pairs)) < 1e-9, "the last phase is as long as the others"
    assert shows_more(round(pairs) - 1, round(pairs), 0.5)
    assert length_of_phase(seconds) <= PHASE_S
"""
    done = subprocess.run([sys.executable, "-c", measure], cwd=FOLDER, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr  # an import of cv2 may warn


def test_what_a_crowd_measures_stays_small_and_is_a_fair_sample() -> None:
    measure = """
import random
from crowd import KEPT, Sample

random.seed(0)
samples = [Sample() for _ in range(100)]
for sample in samples:
    for value in range(1000):
        sample.add(value)
assert {sample.count for sample in samples} == {1000}
assert {len(sample.kept) for sample in samples} == {KEPT}
kept = sorted(value for sample in samples for value in sample.kept)
assert 450 < kept[len(kept) // 2] < 550
"""
    done = subprocess.run([sys.executable, "-c", measure], cwd=FOLDER, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


MEMORY_OF_CHILDREN = """
import children
from promise import Broken
kills = []
for number in range(40):
    kills.append(children.Range(100 + number))
    assert ("not tried" in children.memory_of(kills, 100)) == (number < 39)
    for each in (150 + number, 90 + number, 95):
        kills[-1].add(each)
assert vars(kills[20]) == {"least": 95, "most": 170}
assert children.memory_of(kills, 0)["MB at most"] == 189
kills += [children.Range(150)] * 40
try:
    children.memory_of(kills, 50)
except Broken as broken:
    assert str(broken) == "broken: 80 kills: memory grew from 95 to 150 MB"
"""


def test_the_memory_of_a_parent_of_killed_children_is_judged_by_its_least_figures() -> None:
    for module in NEEDS["children"]:
        pytest.importorskip(module)
    subprocess.run([sys.executable, "-c", MEMORY_OF_CHILDREN], cwd=FOLDER, timeout=TIMEOUT, check=True)


def test_the_possible_answers_under_overload_are_those_of_a_worker_without_delays() -> None:
    measure = "import overload; print(*(overload.possible(rate, 1.0, 4.0, 0) for rate in (10, 500)))"
    done = subprocess.run([sys.executable, "-c", measure], cwd=FOLDER, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["8.0", "50.0"]  # all of the 32 requests; one per 20 ms
