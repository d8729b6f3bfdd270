"""load_in_child: a model that ends or blocks the process that loads it only does so to a child process."""

from __future__ import annotations

import os
import subprocess
import sys
import threading

import hami
import pytest

from hami_model_check import isolation
from hami_model_check.isolation import load_in_child

BACKENDS = """
import os, signal, sys, time
import hami

class Loads(hami.Backend):
    what: str
    log: str = ""
    number: int = 0

    def init(self, options):
        if self.log:
            with open(self.log, "a") as file:
                file.write(f"{os.getpid()}\\n")
        print("printed by the engine", flush=True)
        if self.what == "fails":
            raise hami.ConfigError("Loads: cannot load this")
        if self.what == "misses":
            raise OSError("no such thing")
        if self.what == "ends":
            print("the reason", file=sys.stderr)
            sys.stderr.flush()
            os._exit(self.number)
        if self.what == "waits":
            with open(self.log + ".fifo", "w") as file:
                while True:
                    time.sleep(3600)
        if self.what.startswith("SIG"):
            os.kill(os.getpid(), getattr(signal, self.what))

    def forward(self, batch): ...
"""


@pytest.fixture(autouse=True)
def plugin(tmp_path, monkeypatch):
    """A plugin with the backend Loads, as pip installs it; for child processes only."""
    site = tmp_path / "site"
    info = site / "acme_loads-1.0.dist-info"
    info.mkdir(parents=True)
    (site / "acme_loads.py").write_text(
        BACKENDS + "import pluggy\n@pluggy.HookimplMarker('hami')\ndef hami_register(registry): registry.add(Loads)\n"
    )
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: acme-loads\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[hami]\nloads = acme_loads\n[hami.backends]\nLoads = acme_loads\n")
    monkeypatch.syspath_prepend(str(site))
    monkeypatch.delenv("HAMI_PLUGINS", raising=False)
    monkeypatch.setattr(isolation, "_loaded", set())


def load(what: str, **parameters) -> None:
    given = {"version_of_files": 0, "init_event": None} | {
        name: parameters.pop(name) for name in ("version_of_files", "init_event") if name in parameters
    }
    load_in_child("acme-loads::Loads", {"what": what, **parameters}, **given)


def error_of(what: str, kind: type[Exception] = hami.ConfigError, **parameters) -> str:
    with pytest.raises(kind) as error:
        load(what, **parameters)
    return str(error.value)


def test_a_backend_is_built_once_in_a_child_process(tmp_path):
    log = tmp_path / "log"
    for _ in range(3):
        load("works", log=str(log), number=None)
    pids = log.read_text().split()
    assert len(pids) == 1
    assert int(pids[0]) != os.getpid()
    load("works", log=str(log), number=1)
    load("works", log=str(log), version_of_files=1)
    assert len(set(log.read_text().split())) == 3


@pytest.mark.parametrize(
    ("signal", "meaning"),
    [("SIGFPE", "Floating point exception"), ("SIGSEGV", "Segmentation fault"), ("SIGKILL", "Killed")],
)
def test_the_signal_that_ends_the_child_is_a_config_error(signal, meaning):
    assert error_of(signal).splitlines()[0] == (
        "Loads: the child process that loaded the model first (isolate_load) was ended by "
        f"{signal} ({meaning}); the model is damaged or malicious, or the engine cannot load it"
    )


def test_the_error_of_the_child_is_raised_here_and_the_next_try_starts_another_child(tmp_path):
    log = tmp_path / "log"
    for _ in range(2):
        assert error_of("fails", log=str(log)).splitlines()[0] == "Loads: cannot load this"
    assert len(set(log.read_text().split())) == 2
    assert "no such thing" in error_of("misses")


@pytest.mark.parametrize("answer", ['["pipe", "Identity"]', '["register", "Loads"]', "[1, 2]", "5", '["Error", "x"]'])
def test_the_answer_of_a_child_that_a_model_has_taken_over_is_only_an_error(answer, monkeypatch):
    called = []
    monkeypatch.setattr(hami, "register", called.append)
    with pytest.raises(hami.Error) as error:
        isolation._check("Loads", 1, answer, "")
    assert type(error.value) is (hami.Error if '"Error"' in answer else hami.ConfigError)
    assert called == []


def test_a_wrong_parameter_is_the_error_of_the_child():
    assert 'parameter "number" of Loads takes int' in error_of("works", number="four")
    with pytest.raises(hami.BackendNotFound):
        load_in_child("acme-loads::Absent", {}, version_of_files=0)


@pytest.mark.parametrize("status", [0, 7])
def test_a_child_that_ended_before_it_has_loaded_the_model_is_an_error_with_what_it_wrote(status):
    """An engine may end the process by itself, also with status 0."""
    assert error_of("ends", number=status).splitlines() == [
        f"Loads: the child process that loads the model first (isolate_load) ended with status {status}",
        "printed by the engine",
        "the reason",
    ]


@pytest.mark.parametrize(("name", "value"), [("frozen", True), ("executable", "")])
def test_a_process_without_an_interpreter_says_so(name, value, monkeypatch):
    monkeypatch.setattr(sys, name, value, raising=False)
    assert error_of("works") == (
        "Loads: isolate_load = true needs a Python interpreter, and sys.executable of this process names none"
    )


def test_the_child_is_killed_when_the_init_of_the_node_has_ended(tmp_path):
    log = tmp_path / "log"
    os.mkfifo(f"{log}.fifo")
    event = hami.Event()

    def end() -> None:
        with open(f"{log}.fifo") as fifo:  # the child has opened it
            event.fail(TimeoutError())
            assert fifo.read() == ""  # the child has ended

    thread = threading.Thread(target=end)
    thread.start()
    assert "was ended by SIGKILL (Killed)" in error_of("waits", log=str(log), init_event=event)
    thread.join()


def test_the_child_ends_with_its_parent(tmp_path):
    log = tmp_path / "log"
    os.mkfifo(f"{log}.fifo")
    code = (
        "from hami_model_check.isolation import load_in_child\n"
        f"load_in_child('acme-loads::Loads', {{'what': 'waits', 'log': {str(log)!r}}}, version_of_files=0)"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with (
        subprocess.Popen([sys.executable, "-c", code], env=environment, stderr=subprocess.DEVNULL) as parent,
        open(f"{log}.fifo") as fifo,
    ):
        parent.kill()
        assert fifo.read() == ""
