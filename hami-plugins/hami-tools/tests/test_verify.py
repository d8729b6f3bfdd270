"""`hami verify-plugins` names each file that is not as installed, however RECORD was changed."""

from __future__ import annotations

import base64
import hashlib
import importlib.metadata as metadata
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hami_tools.packages.installation import Copy

INFO = "acme_x-1.0.dist-info"
FILES = {
    "acme_x/__init__.py": b"A = 1\n",
    "acme_x/data/weights.bin": b"weights",
    f"{INFO}/METADATA": b"Metadata-Version: 2.1\nName: acme-x\nVersion: 1.0\n",
    f"{INFO}/entry_points.txt": b"[hami]\nacme-x = acme_x:plugin\n",
    "../bin/acme": b"#!/bin/sh\n",
    "../share/acme.txt": b"data",
}


def hash_of(data: bytes, algorithm: str = "sha256") -> str:
    digest = hashlib.new(algorithm, data).digest()
    return f"{algorithm}={base64.urlsafe_b64encode(digest).decode().rstrip('=')}"


@pytest.fixture
def site(tmp_path: Path) -> Path:
    folder = tmp_path / "site"
    lines = [f"{INFO}/RECORD,,"]
    for name, data in FILES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
        lines.append(f"{name},{hash_of(data)},{len(data)}")
    (folder / INFO / "RECORD").write_text("\n".join([*lines, ""]))
    return folder


CODE = "acme_x/__init__.py"
HASH = f"{hash_of(FILES[CODE])},{len(FILES[CODE])}"


def change(site: Path, to: str) -> None:
    """Change a file, and its line in RECORD so that it seems right."""
    (site / CODE).write_text("A = 2\n")
    record = site / INFO / "RECORD"
    record.write_text(record.read_text().replace(f"{CODE},{HASH}", to))


def add_for_another(site: Path) -> None:
    (site / "acme_x" / "more.py").touch()
    (site / "other-1.dist-info").mkdir()
    (site / "other-1.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: other\nVersion: 1\n")
    (site / "other-1.dist-info" / "RECORD").write_text("acme_x/more.py,,\n")


def as_pipe(file: Path) -> None:
    """Put a pipe that nothing writes in the place of a file: reading it never ends."""
    file.unlink()
    os.mkfifo(file)


CHANGES: dict[str, Callable[[Path], Any]] = {
    "data": lambda site: (site / "acme_x" / "data" / "weights.bin").write_bytes(b"weightz"),
    "a weak hash": lambda site: change(site, f"{CODE},md5=abc,6"),
    "an unknown hash": lambda site: change(site, f"{CODE},nothing,6"),
    "a second line": lambda site: change(site, f"{CODE},{HASH}\n{CODE},{hash_of(b'A = 2')},6"),
    "a file of another distribution without a hash": add_for_another,
    "a record that is not text": lambda site: (site / INFO / "RECORD").write_bytes(b"\xff\xfe,,\n"),
    "a file that is a pipe": lambda site: as_pipe(site / CODE),
    "a record that is a pipe": lambda site: as_pipe(site / INFO / "RECORD"),
    "a name with a NUL character": lambda site: change(site, f"{CODE},{HASH}\nacme_x/a\0b,{hash_of(b'')},0"),
}


def result(hami_command: Any, site: Path) -> dict[str, Any]:
    done = hami_command("verify-plugins", "--json", site=site)
    assert done.stderr == ""
    (found,) = (each for each in json.loads(done.stdout) if each["distribution"] == "acme-x")
    return dict(found)


@pytest.mark.parametrize("changed", CHANGES)
def test_a_changed_file_is_named(hami_command: Any, site: Path, changed: str) -> None:
    CHANGES[changed](site)
    found = result(hami_command, site)
    assert found["problem"]
    if not changed.startswith("a record"):
        assert len(found["changed"] + found["unlisted"]) == 1


@pytest.mark.parametrize("algorithm", ["sha256", "sha384", "sha512"])
def test_a_file_with_a_strong_hash_is_as_installed(hami_command: Any, site: Path, algorithm: str) -> None:
    record = site / INFO / "RECORD"
    record.write_text(record.read_text().replace(hash_of(FILES[CODE]), hash_of(FILES[CODE], algorithm)))
    found = result(hami_command, site)
    assert (found["problem"], found["files"]) == ("", 4)


@pytest.mark.parametrize("file", ["../bin/acme", "../share/acme.txt"])
def test_a_script_or_data_file_in_another_folder_is_compared(
    site: Path, file: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = Copy(metadata.PathDistribution(site / INFO), "acme-x", str(site))
    (site / file).write_bytes(b"changed")
    assert copy.changed_outside() == []  # `pip install --target` has moved it
    monkeypatch.setattr("hami_tools.packages.installation.own_folders", lambda: [str(site)])
    assert copy.changed_outside() == [file]


def test_an_origin_that_is_nested_without_end_is_unknown(hami_command: Any, site: Path) -> None:
    (site / INFO / "direct_url.json").write_text("[" * 100_000)
    found = result(hami_command, site)
    assert (found["problem"], found["source"]) == ("", "")


@pytest.mark.parametrize(
    "name", ["entry_points.txt", "METADATA", "INSTALLER", "direct_url.json", "hami-provenance.json"]
)
def test_metadata_that_are_a_pipe_do_not_hang_a_command(hami_command: Any, site: Path, name: str) -> None:
    (site / INFO / name).unlink(missing_ok=True)
    os.mkfifo(site / INFO / name)
    done = hami_command("verify-plugins", "--json", site=site)
    assert (done.stderr, json.loads(done.stdout)) != ("", "")


def test_code_that_is_a_pipe_beside_its_compiled_file_does_not_hang(hami_command: Any, site: Path) -> None:
    compiled = site / "acme_x" / "__pycache__" / f"__init__.{sys.implementation.cache_tag}.pyc"
    compiled.parent.mkdir()
    os.mkfifo(compiled)
    assert result(hami_command, site)["changed"] == []


def test_a_plugin_is_verified_without_running_its_code(hami_command: Any, site: Path, tmp_path: Path) -> None:
    """Otherwise a changed file could hide itself."""
    ran = tmp_path / "ran"
    (site / CODE).write_text(f"open({str(ran)!r}, 'w')\n")
    assert result(hami_command, site)["changed"] == [CODE]
    assert not ran.exists()
