"""What wrk and h2load print becomes figures, and answers that are errors are never counted."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest
from _lib.paths import ROOT

WRK = '{"answers": 100, "micros": 2000000, "p50_us": 1500, "p99_us": 2500, "failed": %d, "lost": 0}'
H2LOAD = """\
requests: 3 total, 3 started, 3 done, 3 succeeded, %d failed, 0 errored, 0 timeout
traffic: 1KB (1000) total, 100B (100) headers (space savings 0.00%%), 45B (%d) data
"""

Fake = Callable[[str, str], None]


@pytest.fixture
def wire_load(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT / "tests" / "bench" / "peers"))
    import _wire_load

    return _wire_load


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Fake:
    """fake(program, text): the program prints the text, and writes a log of three requests if it is asked for one."""

    def make(program: str, text: str) -> None:
        log = "import sys\nif '--log-file' in sys.argv:\n    path = sys.argv[sys.argv.index('--log-file') + 1]\n"
        log += "    open(path, 'w').write('1\\t200\\t900\\n2\\t200\\t1000\\n3\\t200\\t5000\\n')\n"
        file = tmp_path / program
        file.write_text(f"#!{sys.executable}\n{log}print({text!r})\n", "utf-8")
        file.chmod(0o755)
        monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")

    return make


def over_grpc(wire_load: ModuleType) -> object:
    return wire_load.over_grpc(1, "/method", b"message", 10, clients=1, seconds=2, cores=[0])


def test_a_missing_program_is_named_with_its_package(wire_load: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    with pytest.raises(SystemExit, match=r"^taskset and h2load not found; .*: apt install util-linux nghttp2-client$"):
        wire_load.require_tools("h2load")


def test_figures_of_wrk_are_those_it_prints(wire_load: ModuleType, fake: Fake) -> None:
    fake("wrk", WRK % 0)
    assert wire_load.over_http(1, [b"GET / HTTP/1.1\r\n\r\n"], 1, 2, [0]) == wire_load.Measured(50.0, 1.5, 2.5, 100)


def test_errors_over_http_are_not_counted(wire_load: ModuleType, fake: Fake) -> None:
    fake("wrk", WRK % 7)
    with pytest.raises(RuntimeError, match=r"^of 100 answers, 7 had an error as status; 0 did not come$"):
        wire_load.over_http(1, [b""], 1, 2, [0])


def test_figures_of_h2load_are_from_its_log(wire_load: ModuleType, fake: Fake) -> None:
    fake("h2load", H2LOAD % (0, 45))
    assert over_grpc(wire_load) == wire_load.Measured(1.5, 1.0, 5.0, 3)


@pytest.mark.parametrize(
    ("text", "message"),
    [(H2LOAD % (1, 45), "1 failed"), (H2LOAD % (0, 30), r"3 answers of 15 bytes have 30 bytes: some calls failed")],
)
def test_errors_over_grpc_are_not_counted(wire_load: ModuleType, fake: Fake, text: str, message: str) -> None:
    fake("h2load", text)
    with pytest.raises(RuntimeError, match=message):
        over_grpc(wire_load)


def test_server_and_load_have_processors_of_their_own(wire_load: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wire_load.os, "sched_getaffinity", lambda _: set(range(8)))
    assert wire_load.apart() == ([0, 1, 2, 3, 4, 5], [6, 7])
    monkeypatch.setattr(wire_load.os, "sched_getaffinity", lambda _: {3})
    assert wire_load.apart() == ([3], [3])
