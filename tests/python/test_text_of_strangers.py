"""Files of other people reach the terminal as text: it obeys no escape sequence in them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

CONFIG = """
["a\\u001b[31m"]
backend = "Nope\\u001b[2J"
"key\\u001b[1A" = "x\\u001b]0;t\\u0007"
[b]
backend = "S[Identity\\u001b[31m,"
[c]
backend = "Identity"
max = "\\u001b[31m"
"""
LOCK = 'lock-version = "1.0"\ncreated-by = "hami"\nenvironments = ["\\u001b[31mx"]\npackages = []\n'


@pytest.mark.parametrize(
    "command", ["check", "check --json", "graph", "run", "show-config", "doctor", "verify-plugins"]
)
def test_a_file_of_a_stranger_cannot_send_escape_sequences(hami_command: Any, tmp_path: Path, command: str) -> None:
    (tmp_path / "config.toml").write_text(CONFIG)
    info = tmp_path / "site" / "evil-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: evil\nVersion: 1.0\nSummary: a\x1b[31mb\n")
    (info / "entry_points.txt").write_text(
        "[hami]\nevil\x1b[31m = evil:plugin\n[hami.backends]\nEvil\x1b[2J = evil:Evil\n"
    )
    (info / "RECORD").write_text("evil/a\x1b[31m.py,sha256=abc,3\n")
    file = [] if command.startswith(("doctor", "verify")) else ["config.toml"]
    done = hami_command(*command.split(), *file, site=tmp_path / "site")
    assert done.stdout + done.stderr
    assert not {"\x1b", "\x07"} & set(done.stdout + done.stderr)
    assert "Traceback" not in done.stderr


def test_a_lock_of_a_stranger_cannot_send_escape_sequences(hami_command: Any, tmp_path: Path) -> None:
    (tmp_path / "pylock.toml").write_text(LOCK)
    done = hami_command("sync")
    assert done.returncode == 1
    assert "\x1b" not in done.stderr
    assert "\\x1b[31mx" in done.stderr
