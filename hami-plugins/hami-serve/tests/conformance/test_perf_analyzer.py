"""Triton's perf_analyzer measures our server over HTTP and gRPC. The tests look at its counts, not at its times."""

from __future__ import annotations

import csv
import os
import re
import shutil
import subprocess
import sys
from contextlib import closing
from importlib.util import find_spec
from pathlib import Path

import pytest
from conftest import Running, RunningGrpc, models

from hami_serve import AllRounder

PROGRAM = shutil.which("perf_analyzer", path=str(Path(sys.executable).parent))
if PROGRAM is None or not find_spec("nvidia.cuda_runtime"):
    pytest.skip("needs perf_analyzer: ci/test serving", allow_module_level=True)
REQUESTS = 200  # in a window of measurement; three windows follow each other


def analyze(*arguments: object) -> subprocess.CompletedProcess[str]:
    (cuda,) = find_spec("nvidia.cuda_runtime").submodule_search_locations
    libraries = os.pathsep.join([f"{cuda}/lib", os.environ.get("LD_LIBRARY_PATH", "")])
    env = os.environ | {"LD_LIBRARY_PATH": libraries}
    command = list(map(str, [PROGRAM, *arguments]))
    return subprocess.run(command, env=env, capture_output=True, text=True, timeout=300, check=False)


@pytest.fixture(scope="module")
def servers():
    """The HTTP and the gRPC server of the same models."""
    started = analyze("--version")
    if "cannot open shared object file" in started.stderr:
        pytest.skip(f"{started.stderr.strip()} (Debian, Ubuntu: apt install libb64-0d)")
    with (
        AllRounder(models()) as rounder,
        closing(Running(rounder)) as http,
        closing(RunningGrpc(rounder)) as grpc,
    ):
        yield {"http": http, "grpc": grpc}


def counts(server: Running) -> tuple[int, int]:
    """Return the numbers of requests that the model has answered and failed."""
    _, answer = server.get("/v2/models/simple/stats")
    numbers = answer["model_stats"][0]["inference_stats"]
    return numbers["success"]["count"], numbers["fail"]["count"]


@pytest.mark.parametrize("concurrency", [1, 16, 64])
@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_perf_analyzer_measures_as_many_requests_as_the_server_counts(servers, tmp_path, protocol, concurrency):
    before, _ = counts(servers["http"])
    table = tmp_path / "table.csv"
    where = ["-m", "simple", "-u", servers[protocol].url, "-i", protocol]
    # With --request-count, it sometimes waits for a request that it has not counted.
    window = ["--measurement-mode", "count_windows", "--measurement-request-count", REQUESTS, "-s", 999]
    done = analyze(*where, *window, "--concurrency-range", concurrency, "-f", table)
    assert done.returncode == 0, done.stdout + done.stderr
    after, failed = counts(servers["http"])
    (measured,) = map(int, re.findall(r"Request count: (\d+)", done.stdout))
    assert REQUESTS <= measured <= after - before
    assert failed == 0
    (row,) = csv.DictReader(table.read_text().splitlines())
    assert row["Concurrency"] == str(concurrency)
    print(f"{protocol}, {concurrency} clients: {measured} requests")
