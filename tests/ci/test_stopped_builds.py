"""A build that stops halfway, by a full disk or Ctrl-C, says what to do, and the next build is complete."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).with_name("stopped_build.py")


@pytest.mark.skipif(not shutil.which("bwrap"), reason="needs bubblewrap (Debian, Ubuntu: apt install bubblewrap)")
def test_full_disk_is_reported_and_the_next_build_is_complete(tmp_path: Path) -> None:
    """The disk has one megabyte; with each run it becomes full at a later step of the build."""
    disk = ["bwrap", "--dev-bind", "/", "/", "--size", "1000000", "--tmpfs", tmp_path]
    command = [*disk, sys.executable, SCRIPT, tmp_path, "full"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "built hami-ocr\n"), done.stderr
    assert "Traceback" not in done.stderr
    failures = done.stderr.split("Free some space and run the command again; finished parts are kept.\n")
    assert len(failures) > 3
    assert failures.pop() == ""
    assert all("No space left on device" in failure for failure in failures)


@pytest.mark.parametrize(("sent", "status"), [(signal.SIGINT, 130), (signal.SIGKILL, -signal.SIGKILL)])
def test_build_after_an_interrupted_one_is_complete(tmp_path: Path, sent: signal.Signals, status: int) -> None:
    command = [sys.executable, SCRIPT, tmp_path]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen([*command, "wait"], **pipes) as stopped:
        assert stopped.stdout.readline() == "waiting\n"
        stopped.send_signal(sent)
        assert stopped.wait() == status
        told = stopped.stderr.read()
    assert list((tmp_path / "projects").iterdir())  # leftovers
    assert not (tmp_path / "wheels").exists()
    if sent == signal.SIGINT:
        assert told == "interrupted; finished parts are kept for the next run\n"
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "built hami-ocr\n"), done.stderr
    assert not list((tmp_path / "build").iterdir())
