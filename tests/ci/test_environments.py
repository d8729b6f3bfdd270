"""Problems of the machine are reported before anything is changed."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from _lib import environments
from _lib.paths import ROOT
from hami_build.steps import Failure, guarded


def test_links_to_an_interpreter_share_one_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """/usr/bin/python3 outside a virtual environment is /usr/bin/python3.11 inside."""
    python = environments.base_python()
    (tmp_path / "python3").symlink_to(python)
    monkeypatch.setattr(sys, "_base_executable", str(tmp_path / "python3"))
    assert environments.base_python() == python


def test_changed_requirements_are_installed_into_the_environment_that_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed: list[object] = []

    def install(python: Path, arguments: tuple[object, ...], log: str) -> bool:
        installed.append(arguments)
        return True

    monkeypatch.setattr(environments, "CACHE", tmp_path)
    monkeypatch.setattr(environments, "REQUIREMENTS", tmp_path)
    monkeypatch.setattr(environments, "by_uv", install)
    kept = tmp_path / "envs" / "x" / "kept"
    for number, stays in enumerate((False, True, True)):
        (tmp_path / "x.txt").write_text(f"a=={number}\n")
        environments.ensure("x", environments.base_python())
        assert kept.exists() == stays
        kept.touch()
    assert len(installed) == 3
    (tmp_path / "x.txt").write_text("a==4\n")
    (kept.parent / environments.STAMP).unlink()  # an installation that was interrupted
    environments.ensure("x", environments.base_python())
    assert not kept.exists()


def test_what_uv_cannot_install_pip_installs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[list[object]] = []

    def run(command: list[object], log: str, **env: object) -> str:
        ran.append(command)
        if command[0] == tmp_path / "uv":
            raise Failure("no such index")
        return ""

    monkeypatch.setattr(environments, "run", run)
    monkeypatch.setattr(environments, "ensure", lambda name, python: tmp_path / "python")
    environments.install(tmp_path, "stamp", "numpy")
    assert [command[0].name for command in ran if "install" in command] == ["uv", "python"]  # type: ignore[attr-defined]
    assert environments.stamp_of(tmp_path) == "stamp"


def test_uv_gets_the_settings_of_pip() -> None:
    options, variables = environments.uv_options(
        """:env:.find-links='/wheels'
:env:.retries='8'
global.cert='/certificates'
global.extra-index-url='https://a/simple https://b/simple'
global.find-links='/elsewhere'
install.constraint='/constraints.txt'
install.no-index='1'
"""
    )
    pairs = ["--index https://a/simple", "--index https://b/simple", "--find-links /wheels", "--no-index"]
    pairs += ["--constraint /constraints.txt", "--index-strategy unsafe-best-match"]
    assert sorted(options) == sorted(" ".join(pairs).split())
    assert variables == {"SSL_CERT_FILE": "/certificates"}
    assert environments.uv_options("")[1] == {}


def test_without_an_index_the_message_says_so_and_no_environment_counts_as_complete(tmp_path: Path) -> None:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("PIP_")}
    nowhere = {"PIP_INDEX_URL": "http://127.0.0.1:9/simple", "PIP_CONFIG_FILE": os.devnull, "PIP_RETRIES": "0"}
    python = sys._base_executable  # type: ignore[attr-defined]
    done = subprocess.run(
        [python, ROOT / "ci" / "wheels"],
        env={**inherited, **nowhere, "HAMI_CACHE": str(tmp_path / "cache")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.strip().splitlines()[-1] == environments.INDEX_HINT
    assert environments.stamp_of(tmp_path / "cache" / "envs" / "tools") == ""


def test_full_disk_is_reported_with_the_space_needed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda place: SimpleNamespace(free=7_000_000))
    environments.require_room(tmp_path / "cache", 7)
    with pytest.raises(Failure) as failure:
        environments.require_room(tmp_path / "cache", 8)
    assert str(failure.value) == (
        f"7 MB are free in {tmp_path}, and 8 MB are needed. Nothing was changed. "
        "Free some space, or set HAMI_CACHE to another folder."
    )
    assert not (tmp_path / "cache").exists()


def test_full_disk_does_not_print_a_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    def main() -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "dist/x.whl")

    assert guarded(main) == 1
    said = capsys.readouterr().err
    assert said.strip().splitlines() == [
        "[Errno 28] No space left on device: 'dist/x.whl'",
        "Free some space and run the command again; finished parts are kept.",
    ]
