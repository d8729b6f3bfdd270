"""The command line: its output, its exit status, and that it starts without heavy imports."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import hami
import pytest
from conftest import Run, Site
from hami.cli import all_commands, main

Output = tuple[int, str, str]


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Call main() in an empty folder; return status, output and errors."""
    monkeypatch.chdir(tmp_path)

    def call(*arguments: str) -> Output:
        try:
            status = main(arguments)
        except SystemExit as end:
            status = int(end.code or 0)
        printed = capsys.readouterr()
        return status, printed.out, printed.err

    return call


@hami.register("TestUpper")
class Upper(hami.Backend):
    """Converts bytes or text to capitals; empty data is an error."""

    sign: str = ""

    def forward(self, batch: list[Any]) -> None:
        for item in batch:
            if not item["data"]:
                item.fail(hami.RequestError("nothing to write"))
                continue
            data = item["data"]
            item["result"] = (data.decode() if isinstance(data, bytes) else data).upper() + self.sign


def test_help_lists_the_commands(call: Any) -> None:
    status, out, err = call("--help")
    assert (status, err) == (0, "")
    for command in ("run", "check", "show-config", "schema", "backends", "plugins", "doctor", "version"):
        assert re.search(rf"\n    {command}\s", out)


def test_without_a_command_help_is_printed(call: Any) -> None:
    status, out, _ = call()
    assert status == 2
    assert out.startswith("usage: hami")


def test_version(call: Any) -> None:
    assert call("version") == (0, f"hami-core {hami.__version__}\n", "")
    assert call("--version") == (0, f"hami-core {hami.__version__}\n", "")
    assert call("version", "--json") == (0, f'{{"hami-core": "{hami.__version__}"}}\n', "")


def test_a_command_of_a_missing_plugin_names_the_plugin(call: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hami._plugins.index.Index.of", lambda index, name: [])
    monkeypatch.setattr("hami._cli.main._add_commands_of_plugins", lambda commands, wanted: None)
    status, out, err = call("serve", "pages.toml")
    assert (status, out) == (2, "")
    assert '"serve" is a command of hami-serve, which is not installed: ' in err
    assert err.endswith("pip install hami-serve\n")
    assert call("upgrade")[2].endswith('no command is named "upgrade"; list all: hami --help\n')


def test_an_unknown_command_or_option_is_an_error(call: Any) -> None:
    status, out, err = call("rnu", "x")
    assert (status, out) == (2, "")
    assert err.endswith('hami: error: no command is named "rnu"; did you mean run?\n')
    status, out, err = call("run", "Identity", "--text", "a", "--stat")
    assert (status, out) == (2, "")
    assert err.endswith("hami: error: unrecognized arguments: --stat\n")


def test_run_starts_at_the_node_that_is_asked_for(call: Any, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe.toml"
    pipe.write_text('[loud]\nbackend = "TestUpper"\nsign = "!"\n[same]\nbackend = "Identity"\n')
    assert call("run", str(pipe), "--text", "a", "--node", "loud") == (0, "A!\n", "")
    assert call("run", str(pipe), "--text", "a", "--node", "same") == (0, "a\n", "")
    status, out, err = call("run", str(pipe), "--text", "a")
    assert (status, out) == (1, "")
    assert "several entry nodes; choose one by the key `node_name`" in err
    for source, nodes in ((str(pipe), "loud, same"), ("Identity", "default")):
        problem = f'error: --node takes a node of the pipeline, which has {nodes}; got "lou"\n'
        assert call("run", source, "--text", "a", "--node", "lou") == (1, "", problem)


def test_run_on_text(call: Any) -> None:
    assert call("run", "TestUpper", "--text", "abc") == (0, "ABC\n", "")
    assert call("run", "TestUpper", "--text", "abc", "--set", "sign=!") == (0, "ABC!\n", "")


def test_run_on_json(call: Any) -> None:
    assert call("run", "Identity", "--data", '[{"text": "a", "score": 0.5}]') == (0, "score  text\n0.500  a\n", "")
    status, out, err = call("run", "Identity", "--data", "[1", "--json")
    message = (
        "--data takes a JSON value: Expecting ',' delimiter: line 1 column 3 (char 2); for plain text use --text, "
        "and give a file without --data"
    )
    assert (status, json.loads(out), err) == (1, {"error": message, "type": "ConfigError"}, f"error: {message}\n")
    assert call("run", "Identity", "--data", "[" * 100_000)[2].startswith(
        ("error: --data takes a JSON value: maximum recursion", "error: --data takes a JSON value: Stack overflow")
    )


def test_run_continues_with_the_next_file_after_a_failure(call: Any, tmp_path: Path) -> None:
    folder = tmp_path / "pages"
    folder.mkdir()
    for name, content in [("b.txt", "two"), ("a.txt", "one"), (".hidden", "x"), ("empty.txt", "")]:
        (folder / name).write_text(content)
    status, out, err = call("run", "TestUpper", "pages", "none.txt", "pages/a.txt")
    assert status == 1
    assert out == "pages/a.txt:\n  ONE\npages/b.txt:\n  TWO\npages/a.txt:\n  ONE\n"
    lines = err.splitlines()
    assert lines[0] == "error: pages/empty.txt: nothing to write"
    assert lines[-1] == "error: none.txt: cannot be read: No such file or directory"
    assert "Traceback" not in err


def test_run_prints_one_json_document_a_line(call: Any, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one")
    (tmp_path / "b.txt").write_text("")
    status, out, err = call("run", "TestUpper", "a.txt", "b.txt", "--json")
    assert status == 1
    documents = [json.loads(line) for line in out.splitlines()]
    assert documents[0] == {"input": "a.txt", "result": "ONE"}
    assert documents[1]["input"] == "b.txt"
    assert documents[1]["type"] == "RequestError"
    assert err.startswith("error: b.txt: nothing to write")


@hami.register("TestStrange")
class Strange(hami.Backend):
    """Returns results that are hard or impossible to show, or raises an error that is not an Exception."""

    def forward(self, batch: list[Any]) -> None:
        around: list[Any] = []
        around.append(around)
        answers = {"around": around, "nan": float("nan"), "tuple": {(1, 2): 3}, "half": "\ud800", "plain": 1}
        for item in batch:
            if item["data"] == "exit":
                raise GeneratorExit("enough")
            item["result"] = answers[item["data"]]


STRANGE = [word for name in ("around", "nan", "exit", "tuple", "half", "plain") for word in ("--text", name)]


def test_a_result_that_cannot_be_shown_does_not_stop_the_others(call: Any) -> None:
    status, out, err = call("run", "TestStrange", "--json", *STRANGE)
    around, nan, ended, *rest = (json.loads(line) for line in out.splitlines())
    assert status == 1
    assert around["type"] == "RequestError"
    assert around["error"].startswith("the result cannot be shown: RecursionError: ")
    assert nan == {"input": "--text", "result": None}
    assert (ended["error"].splitlines()[0], ended["type"]) == (
        "the backend raised GeneratorExit(enough)",
        "BackendExit",
    )  # before Python 3.11, notes follow
    assert [one["result"] for one in rest] == [{"(1, 2)": 3}, "\ud800", 1]
    assert "Traceback" not in err
    status, out, err = call("run", "TestStrange", "--text", "around", "--text", "plain")
    assert (status, out) == (1, "--text:\n  1\n")
    assert err.startswith("error: --text: the result cannot be shown: RecursionError: ")


def test_an_error_of_the_whole_command_is_also_json(call: Any) -> None:
    status, out, err = call("run", "Idntity", "--json", "--text", "a")
    report = json.loads(out)
    assert (status, report["type"], err) == (1, "BackendNotFound", f"error: {report['error']}\n")
    assert call("run", "Identity", "--text", "a", "--text", "b")[1] == "--text:\n  a\n--text:\n  b\n"


def test_characters_that_the_output_cannot_encode_are_escaped(hami_command: Run) -> None:
    done = hami_command("run", "Identity", "--data", '"\\u00e9\\ud800"', PYTHONIOENCODING="ascii")
    assert (done.returncode, done.stdout, done.stderr) == (0, "\\xe9\\ud800\n", "")


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        ("version >&-", 0, ""),
        ("backends >&-", 0, ""),
        ("run Identity --text a >&- 2>&-", 0, ""),
        ("run Identity - <&-", 1, "error: cannot read the input - : standard input is closed\n"),
    ],
)
def test_closed_streams_do_not_crash_the_command(arguments: str, status: int, message: str) -> None:
    done = subprocess.run(f"{sys.executable} -m hami {arguments}", shell=True, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (status, "", message)


def test_run_prints_the_counters_of_each_node(call: Any) -> None:
    status, out, _ = call("run", "TestUpper", "--stats", "--text", "a")
    assert status == 0
    result, empty, *rows = out.splitlines()
    assert (result, empty) == ("A", "")
    assert [row.split() for row in rows[:2]] == [["statistic", "default"], ["submitted", "1"]]
    status, out, _ = call("run", "TestUpper", "--stats", "--json", "--text", "a")
    assert json.loads(out.splitlines()[1])["stats"]["default"]["completed"] == 1


def test_run_without_a_source_reports_only_the_missing_source(call: Any) -> None:
    status, _, err = call("run")
    assert (status, err.splitlines()[-1]) == (2, "hami run: error: the following arguments are required: SOURCE")


def test_run_without_input_lists_the_possible_inputs(call: Any, tmp_path: Path) -> None:
    message = "error: there is no input; give a file, a folder, - for standard input, --text or --data\n"
    assert call("run", "Identity") == (1, "", message)
    (tmp_path / "empty").mkdir()
    assert call("run", "Identity", "empty") == (1, "", 'error: the folder "empty" has no files\n')


def test_run_shows_configuration_errors_without_a_traceback(call: Any) -> None:
    assert call("run", "none.toml", "--text", "a") == (
        1,
        "",
        f'error: cannot read "none.toml": No such file or directory (looked for {Path.cwd()}/none.toml)\n',
    )
    status, out, err = call("run", "S[TestUper]", "--text", "a")
    assert (status, out) == (1, "")
    assert err.startswith('error: backend "TestUper" not found; did you mean TestUpper?  (list all: hami backends)\n')
    assert call("run", "TestUpper", "--text", "a", "--set", "x") == (1, "", 'error: --set takes KEY=VALUE, got "x"\n')


@pytest.mark.parametrize(
    ("key", "instead"),
    [
        ("global.sign", "--set sign=x sets it for all nodes"),
        ("entrypoint", "write it into a file"),
        ("providers.TestUpper", "write it into a file"),
    ],
)
def test_only_keys_of_nodes_can_be_set(call: Any, key: str, instead: str) -> None:
    message = f'--set takes keys of nodes, got "{key}"; {instead}'
    assert call("run", "TestUpper", "--text", "a", "--set", f"{key}=x") == (1, "", f"error: {message}\n")


def test_run_shows_a_traceback_on_request(call: Any) -> None:
    status, _, err = call("run", "none.toml", "--text", "a", "--traceback")
    assert (status, err.splitlines()[0]) == (1, "Traceback (most recent call last):")
    assert 'hami._errors.ConfigError: cannot read "none.toml": No such file or directory' in err
    status, _, err = call("run", "TestUpper", "--text", "", "--traceback")
    assert status == 1
    assert "Traceback (most recent call last)" in err


def test_settings_apply_to_one_node_or_to_all(call: Any, tmp_path: Path) -> None:
    (tmp_path / "two.toml").write_text(
        '[first]\nbackend = "TestUpper"\nnext = "second"\n[second]\nbackend = "TestUpper"\nmap = "first[result:data]"\n'
    )
    run = ("run", "two.toml", "--text", "a")
    assert call(*run) == (0, "A\n", "")
    assert call(*run, "--set", "first.sign=1", "--set", "second.sign=2") == (0, "A12\n", "")
    assert call(*run, "--set", "sign=x") == (0, "AXx\n", "")
    rows = call(*run, "--stats")[1].splitlines()
    assert rows[2].split() == ["statistic", "first", "second"]  # in the order of the file


def test_run_first_imports_the_file_that_the_user_gives(hami_command: Run, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "import hami\nimport helper\n"
        "@hami.register\nclass Mine(hami.Backend):\n"
        "    def forward(self, batch):\n"
        "        for item in batch:\n"
        "            item['result'] = helper.greet(item['data'])\n"
    )
    (tmp_path / "helper.py").write_text("def greet(name):\n    return f'hello {name}'\n")
    done = hami_command("run", "Mine", "--text", "you", "--import", "mine.py")
    assert (done.returncode, done.stdout, done.stderr) == (0, "hello you\n", "")
    done = hami_command("run", "Mine", "--text", "you", "--import", "yours.py")
    assert (done.returncode, done.stderr) == (1, 'error: cannot import "yours.py": no such file\n')
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "ours.py").touch()
    done = hami_command("run", "Mine", "--text", "you", "--import", "lib/ours")
    assert (done.returncode, done.stderr) == (
        1,
        'error: no module named "lib/ours"; did you mean the file, --import lib/ours.py?\n',
    )


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("exits.py", "it called sys.exit(3)"),
        ("fails.py", "ValueError: no anvil"),
        ("no_such_module", "No module named 'no_such_module'"),
        ("", "ValueError: Empty module name"),
    ],
)
def test_a_failed_import_is_reported_with_its_reason(call: Any, tmp_path: Path, name: str, reason: str) -> None:
    (tmp_path / "exits.py").write_text("import sys\nsys.exit(3)\n")
    (tmp_path / "fails.py").write_text("raise ValueError('no anvil')\n")
    message = f"--import {name}: {reason}"
    assert call("run", "Identity", "--text", "a", "--import", name) == (1, "", f"error: {message}\n")
    status, out, err = call("check", "Identity", "--json", "--import", name)
    assert (status, err) == (1, "")
    assert json.loads(out)["problems"] == [{"type": "ConfigError", "message": message}]
    status, out, err = call("check", "Identity", "--traceback", "--import", name)
    assert (status, out, err.splitlines()[0]) == (1, "", "Traceback (most recent call last):")


def test_run_reads_standard_input(hami_command: Run) -> None:
    done = hami_command("run", "Identity", "-", given="abc")
    assert (done.returncode, done.stdout, done.stderr) == (0, "3 bytes\n", "")


def test_run_of_a_packaged_pipeline(hami_command: Run, site: Site) -> None:
    site.install("acme-good")
    done = hami_command("run", "acme-twice", "--data", "40", site=site.folder)
    assert (done.returncode, done.stdout, done.stderr) == (0, "42\n", "")


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize(
    "arguments", ["backends", "--help", "run Identity --data 1 --json", "run Absent --data 1 --json", "check Absent"]
)
def test_a_reader_that_ends_does_not_cause_a_traceback(arguments: str, unbuffered: str) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-m", "hami", *arguments.split()]
    environment = {**os.environ, "PYTHONUNBUFFERED": unbuffered}
    done = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, text=True, env=environment, check=False)
    os.close(writer)
    ignored = arguments == "--help" and unbuffered  # argparse of some Pythons ignores the error of printing the help
    assert done.returncode == 1 or (ignored and done.returncode == 0)
    assert "Traceback" not in done.stderr
    assert "Broken pipe" not in done.stderr


def test_a_broken_pipe_of_a_backend_is_reported(call: Any) -> None:
    class Broken(hami.Backend):
        def init(self, options: Any) -> None:
            raise BrokenPipeError("the service has closed the connection")

        def forward(self, batch: list[Any]) -> None: ...

    hami.register("TestBrokenPipe")(Broken)
    status, out, err = call("run", "TestBrokenPipe", "--data", "1")
    assert (status, out, err.splitlines()[0]) == (1, "", "error: the service has closed the connection")


@pytest.mark.parametrize("arguments", ["run Identity --data 1", "run Absent --data 1 --json"])
def test_a_full_disk_is_an_error_without_a_traceback(arguments: str) -> None:
    with open("/dev/full", "w") as full:
        command = [sys.executable, "-m", "hami", *arguments.split()]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 1
    assert "[Errno 28] No space left on device\n" in done.stderr
    assert "Traceback" not in done.stderr


INTERRUPTED = """
import signal
from hami._plugins import manager

def find(*arguments):
    signal.raise_signal(signal.SIGINT)

manager.installed.find = find
"""


@pytest.mark.parametrize("command", ["run", "check"])
def test_ctrl_c_while_a_name_is_looked_up_ends_with_130(command: str, hami_command: Run, tmp_path: Path) -> None:
    (tmp_path / "interrupted.py").write_text(INTERRUPTED)
    data = ["--data", "1"] if command == "run" else []
    done = hami_command(command, "S[Absent,Missing]", *data, "--import", "interrupted.py")
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "interrupted by Ctrl-C\n")


STARTS = """
import os
import sys
import hami

@hami.register
class Starts(hami.Backend):
    until_cancelled: bool = False

    def forward(self, batch):
        print("started", file=sys.stderr, flush=True)
        if self.until_cancelled:
            while not batch[0].cancelled:
                os.sched_yield()
        elif not sys.stdin.buffer.read(1):
            raise EOFError
        for item in batch:
            item["result"] = item["data"].decode()
"""


@pytest.fixture
def starts(tmp_path: Path) -> Any:
    """Return a function that starts `hami run` on files 0 to 99; each request waits for a byte of standard input."""
    (tmp_path / "starts.py").write_text(STARTS)
    (tmp_path / "inputs").mkdir()
    for number in range(100):
        (tmp_path / "inputs" / f"{number:02}").write_text(str(number))
    command = [sys.executable, "-m", "hami", "run", "Starts", "inputs", "--import", "starts.py", "--json", "--stats"]

    @contextlib.contextmanager
    def start(*arguments: str) -> Iterator[subprocess.Popen[str]]:
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        with subprocess.Popen([*command, *arguments], cwd=tmp_path, text=True, **pipes) as process:
            try:
                yield process
            finally:
                process.kill()

    return start


def complete_one(process: subprocess.Popen[str]) -> None:
    process.stdin.write("x")
    process.stdin.flush()
    assert json.loads(process.stdout.readline())["result"] == "0"


def test_sigterm_completes_the_requests_that_run_and_prints_their_results(starts: Any) -> None:
    with starts() as process:
        complete_one(process)
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate("x" * 100, timeout=60)
    *started, message = err.splitlines()
    *results, stats = map(json.loads, out.splitlines())
    assert 1 < len(started) < 100
    assert [one["result"] for one in results] == [str(number) for number in range(1, len(started))]
    assert stats["stats"]["default"]["completed"] == len(started)
    assert (process.returncode, message) == (143, f"ended by SIGTERM: {len(started)} of 100 inputs are done")


def test_a_second_sigterm_ends_a_run_at_once(starts: Any) -> None:
    with starts() as process:
        complete_one(process)
        end = time.monotonic() + 60
        while process.poll() is None:  # a signal that arrives before the previous one is handled is lost
            assert time.monotonic() < end
            process.send_signal(signal.SIGTERM)
        assert process.returncode == -signal.SIGTERM


def wait_until_blocked(process: subprocess.Popen[str]) -> None:
    """Return once the main thread sleeps. Free-threaded CPython misses a signal while a thread spins for a lock."""
    end = time.monotonic() + 60
    while Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[0] != "S":
        assert process.poll() is None, process.stderr.read()
        assert time.monotonic() < end
        os.sched_yield()


def test_a_run_that_ends_is_not_waited_for(starts: Any) -> None:
    with starts("--absent") as process:
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)  # it stays a zombie
        with pytest.raises(AssertionError, match="--absent"):
            wait_until_blocked(process)


def test_ctrl_c_cancels_the_requests_of_a_run(starts: Any) -> None:
    with starts("--set", "until_cancelled=true") as process:
        assert process.stderr.readline() == "started\n"
        wait_until_blocked(process)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (130, "")
    assert err.replace("started\n", "") == "interrupted by Ctrl-C\n"  # no backend was abandoned after the time limit


def test_check_finds_nothing_wrong(call: Any, tmp_path: Path) -> None:
    (tmp_path / "good.toml").write_text('[a]\nbackend = "Identity"\n')
    assert call("check", "good.toml") == (0, "good.toml: no problems, 1 node\n", "")
    assert json.loads(call("check", "Identity", "--json")[1]) == {
        "source": "Identity",
        "nodes": 1,
        "problems": [],
        "findings": [],
    }


def test_check_lists_every_problem_and_fails(call: Any, tmp_path: Path) -> None:
    text = 'entrypiont = 1\n[a]\nbackend = "S[Identiti"\n[b]\nbackend = "TestUper"\nmax = "x"\n'
    (tmp_path / "bad.toml").write_text(text)
    status, out, err = call("check", "bad.toml")
    assert (status, err) == (1, "")
    assert out.startswith(
        'unknown top-level key "entrypiont"; did you mean "entrypoint"?\n'
        "  in  entrypiont = 1   (bad.toml:1)\n      ^^^^^^^^^^\n"
        "  write a node as a table, [node], and a key for all nodes into [global]\n\n"
    )
    assert 'backend "TestUper" not found; did you mean TestUpper?' in out
    assert "bad.toml:3" in out
    found = json.loads(call("check", "bad.toml", "--json")[1])["problems"]
    assert out.endswith(f"\n\n{len(found)} problems in bad.toml\n")
    assert len(found) >= 4
    assert call("check", "none.toml") == (
        1,
        f'cannot read "none.toml": No such file or directory (looked for {Path.cwd()}/none.toml)\n\n'
        "1 problem in none.toml\n",
        "",
    )


HEAVY = ("argparse", "importlib.metadata", "inspect", "pluggy", "tomllib", "tomli", "typing", "dataclasses", "asyncio")


def test_importing_hami_imports_nothing_heavy() -> None:
    code = f"import sys; before = set(sys.modules); import hami; print(*(set(sys.modules) - before) & set({HEAVY!r}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


def test_help_lists_the_commands_of_installed_plugins(site: Site, hami_command: Run) -> None:
    site.install("acme-good", "acme-exits")
    done = hami_command("--help", site=site.folder)
    assert done.returncode == 0
    assert re.search(r"^ +acme +.* \(acme-good\)$", done.stdout, re.MULTILINE)


def test_version_does_not_load_plugins() -> None:
    code = (
        "import sys\nfrom hami.cli import main\nmain(['--version'])\n"
        "print(*{'pluggy', 'importlib.metadata', 'tomllib'} & set(sys.modules), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr.split() == []


def test_a_command_of_a_plugin_that_is_disabled_names_the_setting(hami_command: Run) -> None:
    pytest.importorskip("hami_tools")
    done = hami_command("completion", "bash", HAMI_PLUGINS="onnx")
    assert done.returncode == 2
    assert '"completion" is a command of hami-tools, which is disabled by HAMI_PLUGINS=onnx' in done.stderr


CRASH = "import ctypes\nctypes.string_at(0)\n"


def test_a_command_that_crashes_prints_the_stack_of_each_thread(hami_command: Run, tmp_path: Path) -> None:
    (tmp_path / "crash.py").write_text(CRASH)
    done = hami_command("run", "Identity", "--text", "a", "--import", "crash.py")
    assert done.returncode == -signal.SIGSEGV
    assert done.stderr.startswith("Fatal Python error: Segmentation fault\n\n")
    assert "/crash.py" in done.stderr


def test_a_fault_handler_that_is_enabled_already_stays_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "crash.py").write_text(CRASH)
    code = (
        "import faulthandler, sys\nfaulthandler.enable(open('stack.txt', 'w'))\n"
        "from hami._cli.main import main\nsys.argv = ['hami', 'check', 'Identity', '--import', 'crash.py']\nmain()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (-signal.SIGSEGV, "")
    assert (tmp_path / "stack.txt").read_text().startswith("Fatal Python error: Segmentation fault\n\n")


def test_a_program_that_calls_a_command_keeps_its_own_crash_settings() -> None:
    code = "import faulthandler\nfrom hami._cli.main import main\nmain(['version'])\nprint(faulthandler.is_enabled())"
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONFAULTHANDLER"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    assert done.stdout.splitlines()[-1] == "False"


OUT_OF_RANGE = [
    "",
    " ",
    "-2",
    "nan",
    "inf",
    "-inf",
    "1e400",
    "9" * 30,
    "9" * 5000,
    "0" * 9 + "9" * 12,
    "1e300",
    "1e300min",
]


def options_with_numbers() -> list[Any]:
    """Return each option of each command whose value is a number, with its command."""

    def walk(parser: argparse.ArgumentParser) -> Iterator[tuple[str, argparse.Action]]:
        for action in parser._actions:
            if isinstance(action, argparse._SubParsersAction):
                for each in action.choices.values():
                    yield from walk(each)
            elif action.type is not None and _is_number(action.type):
                yield parser.prog, action

    return [
        pytest.param(action.type, id=f"{command} {(action.option_strings or [action.dest])[0]}".replace(" ", "-"))
        for command, action in walk(all_commands()[0])
    ]


def _is_number(kind: Any) -> bool:
    with contextlib.suppress(argparse.ArgumentTypeError, ValueError, TypeError):
        value = kind("1")
        return isinstance(value[0] if isinstance(value, list) else value, (int, float))
    return False


@pytest.mark.parametrize("kind", options_with_numbers())
@pytest.mark.parametrize("text", OUT_OF_RANGE, ids=lambda text: text[:14] or "empty")
def test_a_number_of_a_command_is_bounded_or_wrong_usage(kind: Any, text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError) as raised:
        kind(text)
    assert len(str(raised.value)) < 200
