"""`hami top` and `hami graph --live`: what the pipes of another process do, also if it is stuck."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import hami
import pytest
from hami.cli import main

from hami_tools import live
from hami_tools.top import _lines

IDLE = """
import hami, sys
nodes = {"first": {"backend": "Identity", "max": 4, "next": "second"}, "second": {"backend": "Identity"}}
with hami.pipe(nodes) as pipe:
    pipe([{"data": number} for number in range(6)])
    pipe({"data": 1}, priority=255)
    print("ready", flush=True)
    sys.stdin.read()
"""
# The backend holds the GIL, as an extension module that hangs does.
STUCK = """
import ctypes, hami
@hami.register
class Hangs(hami.Backend):
    def forward(self, batch):
        print("ready", flush=True)
        ctypes.PyDLL(None).sleep(60)
pipe = hami.pipe({"slow": {"backend": "EXPRESSION"}})
pipe({"data": 1}, priority=255)
"""


@pytest.fixture(autouse=True)
def runtime_folder(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path_factory.mktemp("r")
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(folder))
    monkeypatch.setenv("TMPDIR", str(folder))
    return folder


@contextmanager
def process(program: str, **environment: str) -> Iterator[int]:
    """Run a program until it prints "ready"; yield its number."""
    with subprocess.Popen(
        [sys.executable, "-c", program],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, **environment},
    ) as running:
        try:
            assert running.stdout
            assert running.stdout.readline() == "ready\n"
            yield running.pid
        finally:
            running.kill()


def shown(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    assert main(["top", "--json", *arguments]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_the_statistics_of_another_process_are_those_that_it_sees_itself() -> None:
    program = IDLE.replace("sys.stdin.read()", "sys.stdin.readline(); print(repr(pipe.stats()['first'].as_dict()))")
    with process(program) as pid:
        (pipe,) = live.read(pid)
    assert list(pipe.description["nodes"]) == ["first", "second"]
    assert pipe.description["nodes"]["first"]["batching"]["max"] == 4
    assert pipe.stats["first"].completed == 7
    assert pipe.stats["first"].lanes["urgent"].completed == 1
    assert pipe.stats["second"].latency_ms.count == 7
    assert list(pipe.stats["first"].backend_ms) == ["Identity"]


def test_top_shows_each_node_and_its_lanes(capsys: pytest.CaptureFixture[str]) -> None:
    with process(IDLE) as pid:
        (pipe,) = shown(capsys, str(pid), "--once", "--interval", "10ms")["pipes"]
        assert list(pipe["nodes"]) == ["first", "second"]
        assert pipe["nodes"]["first"]["waiting"] == pipe["nodes"]["first"]["running"] == 0
        assert list(pipe["nodes"]["first"]["lanes"]) == ["urgent", "high", "normal"]
        assert main(["top", str(pid), "--once", "--interval", "10ms"]) == 0
        lines = capsys.readouterr().out.splitlines()
    lanes_of_first = pipe["nodes"]["first"]["lanes"]
    assert all(set(lane) == {"per_second", "waiting", "running", "p99_ms"} for lane in lanes_of_first.values())
    assert lines[1].split() == ["node", "req/s", "waiting", "running", "batch", "busy", "p99", "ms"]
    lanes = ["urgent", "high", "normal"]
    assert [line.split()[0] for line in lines[2:10]] == ["first", *lanes, "second", *lanes]
    assert "policy of first: return waits off" in lines[10:]


def test_the_policy_of_a_node_is_one_line() -> None:
    policy = {"target_batch_size": 8, "return_waits": True, "return_wait_gain": 0.25, "capped": True}
    policy |= {"padding": 0.05, "batch_cost": 320.4, "cost_per_second": 9650.3}
    node = {"policy": {**policy, "instances_in_use": 2, "trial": "more_instances"}}
    lines = list(_lines(1, [{"label": "", "uptime_s": 1.0, "nodes": {"default": node}, "threads": []}]))
    assert lines[-1] == (
        "policy of default: target batch size 8, return waits on (latency -25.0%), instances in use 2, "
        "trying more instances, padding 5%, cost 320 a batch, 9650 a s, high traffic caps batches"
    )


@pytest.mark.parametrize("expression", ["S[Identity,Hangs]", "Hangs", "BackgroundThread[Hangs]"])
def test_a_process_that_is_stuck_with_the_gil_names_the_backend_in_which_its_thread_is(
    expression: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with process(STUCK.replace("EXPRESSION", expression)) as pid:
        (pipe,) = shown(capsys, str(pid), "--once", "--interval", "10ms")["pipes"]
        (thread,) = pipe["threads"]
        assert (thread["node"], thread["backend"]) == ("slow", "Hangs")
        assert Path(f"/proc/{pid}/task/{thread['thread']}").exists()
        assert pipe["nodes"]["slow"]["running"] == 1
        assert pipe["nodes"]["slow"]["busy"] > 0.9
        assert main(["top", str(pid), "--once", "--interval", "10ms"]) == 0
        assert ": slow / Hangs for " in capsys.readouterr().out


def test_without_a_process_those_with_a_pipe_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    with process(IDLE) as pid:
        commands = {each["pid"]: each["command"] for each in shown(capsys)["processes"]}
        assert "import hami" in commands[pid]


def test_the_graph_of_a_running_process_has_its_numbers(capsys: pytest.CaptureFixture[str]) -> None:
    with process(IDLE) as pid:
        assert main(["graph", "--live", str(pid)]) == 0
        assert "7 completed" in capsys.readouterr().out
        assert main(["graph", "--live", f"{pid}:2"]) == 1
        assert "there is no pipe 2" in capsys.readouterr().err
    assert main(["graph"]) == 1
    assert "hami graph takes a SOURCE, or --live PID" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("pid", "message"),
    [("4194305", "there is no process 4194305"), (str(os.getpid()), "has no open pipe")],
    ids=["absent", "without a pipe"],  # the same in each process that runs tests
)
def test_a_process_without_a_pipe_is_an_error(pid: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["top", pid, "--once"]) == 1
    assert message in capsys.readouterr().err


def test_a_process_of_another_user_is_an_error(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    user = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: user + 1)
    assert main(["top", str(os.getpid()), "--once"]) == 1
    assert "belongs to another user" in capsys.readouterr().err


def test_the_socket_exists_while_a_pipe_is_open_and_only_its_user_may_enter_its_folder(runtime_folder: Path) -> None:
    path = runtime_folder / "hami" / f"{os.getpid()}.sock"
    with hami.pipe("Identity"):
        with hami.pipe("Identity"):
            assert len(live.read(os.getpid())) == 2
        assert path.exists()
        assert path.parent.stat().st_mode & 0o777 == 0o700
    assert not path.exists()


def test_a_process_does_not_open_a_socket_if_it_is_told_so(runtime_folder: Path) -> None:
    with process(IDLE, HAMI_TOP="0") as pid:
        assert not (runtime_folder / "hami" / f"{pid}.sock").exists()


def test_a_folder_that_others_may_open_is_not_used(runtime_folder: Path) -> None:
    (runtime_folder / "hami").mkdir(mode=0o755)
    with hami.pipe("Identity"):
        assert list((runtime_folder / "hami").iterdir()) == []


def test_the_child_of_a_fork_is_not_its_parent(runtime_folder: Path) -> None:
    program = IDLE.replace(
        'print("ready", flush=True)',
        """
    import os
    child = os.fork()
    if child == 0:
        with hami.pipe("Identity") as pipe:
            print("ready", flush=True)
            os.read(0, 1)
        os._exit(0)
""",
    )
    with process(program) as pid:
        assert len(live.read(pid)) == 1
        (child,) = {int(path.stem) for path in (runtime_folder / "hami").glob("*.sock")} - {pid}
        try:
            assert {pid, child} <= set(live.processes())
            assert [list(pipe.stats) for pipe in live.read(child)] == [["default"]]
        finally:
            os.kill(child, 9)


def test_top_shows_the_label_of_a_pipe() -> None:
    with process(IDLE.replace("    print", '    pipe.set_label("detect version 1")\n    print')) as pid:
        (pipe,) = live.read(pid)
        assert pipe.label == "detect version 1"
        command = [sys.executable, "-m", "hami", "top", str(pid), "--once", "--interval", "1ms"]
        shown = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout
        assert shown.startswith(f"process {pid}, pipe of detect version 1 open for ")


def test_top_stops_quietly_when_its_reader_does() -> None:
    with process(IDLE) as pid:
        command = f"{sys.executable} -m hami top {pid} --interval 1ms | head -n 1"
        ended = subprocess.run(["sh", "-c", command], capture_output=True, text=True, timeout=60, check=True)
    assert ended.stdout.startswith(f"process {pid}, pipe open for ")
    assert ended.stderr == ""


def test_top_ends_with_an_error_when_its_process_is_killed() -> None:
    with process(IDLE) as pid:
        command = [sys.executable, "-m", "hami", "top", str(pid), "--interval", "1ms"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as shows:
            assert shows.stdout
            assert shows.stderr
            assert shows.stdout.readline().startswith(f"process {pid}")
            os.kill(pid, 9)
            while shows.stdout.readline():
                pass
            error = shows.stderr.read()
            status = shows.wait()
    assert status == 1
    assert f"process {pid}" in error


def test_several_tools_may_watch_one_pipe() -> None:
    with process(IDLE) as pid, ThreadPoolExecutor(8) as readers:
        for (pipe,) in readers.map(live.read, [pid] * 32):
            assert pipe.stats["first"].completed == 7


def test_on_a_terminal_each_line_fits(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.get_terminal_size", lambda: os.terminal_size((20, 4)))
    with process(IDLE) as pid:
        monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
        assert main(["top", str(pid), "--once", "--interval", "10ms"]) == 0
    lines = capsys.readouterr().out.removeprefix("\x1b[H\x1b[J").splitlines()
    assert len(lines) == 3
    assert max(map(len, lines)) <= 20
    assert lines[1].startswith("node")
