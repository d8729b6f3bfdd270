"""hami completion: scripts that complete the commands of the core and of plugins."""

from __future__ import annotations

import shlex
import shutil
import subprocess
from typing import Any

import pytest
from hami.cli import main

from hami_tools.completion import SHELLS, words_of_commands


def completed(line: str) -> list[str]:
    """Return what bash completes at the end of a line, with the script of hami."""
    words = line.split(" ")
    quoted = " ".join(map(shlex.quote, words))
    script = (
        f"{SHELLS['bash'](words_of_commands())}\nCOMP_WORDS=({quoted}); COMP_CWORD={len(words) - 1}; _hami\n"
        'printf "%s\\n" "${COMPREPLY[@]}"'
    )
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True)
    assert done.stderr == ""
    return done.stdout.split()


@pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed")
def test_bash_completes_commands_and_options(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    assert completed("hami ben") == ["bench"]
    assert completed("hami bench --sc") == ["--scenario"]
    assert completed("hami --vers") == ["--version"]
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pages.toml").write_text("")
    assert completed("hami bench pag") == ["pages.toml"]


@pytest.mark.parametrize("shell", SHELLS)
def test_there_is_a_script_for_each_shell(capsys: pytest.CaptureFixture[str], shell: str) -> None:
    assert main(["completion", shell]) == 0
    text = capsys.readouterr().out
    for word in ("bench", "scenario", "completion", "doctor"):
        assert word in text


def test_an_unknown_shell_is_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main(["completion", "cmd"])
    assert end.value.code == 2
    assert "invalid choice" in capsys.readouterr().err
