"""Whether a library is the file that its distribution has installed, by sizes and hashes of its RECORD."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import hami
import pytest
from hami._plugins import recorded_files
from hami._plugins.recorded_files import check_library


def line(name: str, content: bytes, *, with_hash: bool = True) -> str:
    digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).decode().rstrip("=")
    return f"{name},{f'sha256={digest}' if with_hash else ''},{len(content)}"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder on sys.path with a package that has two libraries."""
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "acme").mkdir()
    (tmp_path / "acme" / "acme.so").write_bytes(b"library")
    (tmp_path / "acme" / "libhelp.so.3.1").write_bytes(b"helper")
    return tmp_path


def install(folder: Path, *lines: str, version: str = "1.0", installer: str = "pip") -> None:
    metadata = folder / f"acme_cv-{version}.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: acme-cv\nVersion: {version}\n")
    (metadata / "INSTALLER").write_text(f"{installer}\n")
    (metadata / "RECORD").write_text("\n".join([*lines, f"{metadata.name}/RECORD,,", ""]))


def check(folder: Path) -> str:
    try:
        check_library(folder / "acme" / "acme.so", "acme-cv")
    except hami.PluginError as error:
        return str(error)
    return ""


OWN, HELPER = "acme/acme.so", "acme/libhelp.so.3.1"


def test_the_files_that_were_installed_pass(folder: Path) -> None:
    install(folder, line(OWN, b"library"), line(HELPER, b"helper"), "acme/gone.so,,3")
    assert check(folder) == ""


@pytest.mark.parametrize(
    ("own", "helper", "file", "problem"),
    [
        (b"libraries", b"helper", OWN, "it has 7 bytes, and 9 were installed"),
        (b"LIBRARY", b"helper", OWN, "its content is not what was installed"),
        (b"library", b"help", HELPER, "it has 6 bytes, and 4 were installed"),
    ],
)
def test_a_damaged_file_is_named_with_the_command_that_reinstalls_it(
    folder: Path, own: bytes, helper: bytes, file: str, problem: str
) -> None:
    install(folder, line(OWN, own), line(HELPER, helper))
    command = f"pip install --upgrade --no-deps --target {folder} acme-cv"
    assert check(folder) == f'"{folder}/{file}" is damaged: {problem}; reinstall it: {command}'


def test_the_content_of_other_libraries_is_not_read(folder: Path) -> None:
    install(folder, line(OWN, b"library"), line(HELPER, b"HELPER"))
    assert check(folder) == ""


def test_a_file_without_a_recorded_hash_may_have_any_content(folder: Path) -> None:
    install(folder, line(OWN, b"LIBRARY", with_hash=False))
    assert check(folder) == ""


def test_a_file_that_no_record_lists_is_not_checked(folder: Path) -> None:
    assert check(folder) == ""
    install(folder)
    assert check(folder) == ""
    (folder / "acme_cv-1.0.dist-info" / "RECORD").unlink()
    assert check(folder) == ""


def test_a_file_may_match_either_of_two_records(folder: Path) -> None:
    install(folder, line(OWN, b"previous version"))
    install(folder, line(OWN, b"library"), version="1.1")
    assert check(folder) == ""


def test_an_installer_that_changes_binaries_is_not_checked(folder: Path) -> None:
    install(folder, line(OWN, b"before conda"), installer="conda")
    assert check(folder) == ""


def test_a_file_that_is_replaced_meanwhile_is_read_again(folder: Path) -> None:
    install(folder, line(OWN, b"library"))
    assert check(folder) == ""
    library = folder / OWN
    library.write_bytes(b"LIBRARY")
    os.utime(library, ns=(0, 1))
    assert "its content is not what was installed" in check(folder)


# ---- every file, before a plugin is imported ----


@pytest.fixture
def plugin(folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Return the module of an installed plugin, whose files are checked."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("HAMI_CHECK_FILES", "1")
    module = b"import hami, pluggy\nclass AcmeOne(hami.Backend):\n    def forward(self, batch): pass\n"
    module += b"@pluggy.HookimplMarker('hami')\ndef hami_register(registry): registry.add(AcmeOne)\n"
    entries = b"[hami]\none = acme.one\n[hami.backends]\nAcmeOne = acme.one\n"
    (folder / "acme" / "one.py").write_bytes(module)
    install(folder, line("acme/one.py", module), line("acme_cv-1.0.dist-info/entry_points.txt", entries))
    (folder / "acme_cv-1.0.dist-info" / "entry_points.txt").write_bytes(entries)
    return folder / "acme" / "one.py"


def test_a_file_that_was_compared_is_not_read_again(plugin: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recorded_files.require_whole("acme-cv")
    monkeypatch.setattr(recorded_files, "digest", lambda *_: pytest.fail("a file was read again"))
    recorded_files.require_whole("Acme_CV")


@pytest.mark.parametrize("damage", ["changed", "changed with its time", "missing"])
def test_a_plugin_with_a_damaged_file_is_not_imported(plugin: Path, damage: str) -> None:
    recorded_files.require_whole("acme-cv")
    status = plugin.stat()
    if damage == "missing":
        plugin.unlink()
    else:
        plugin.write_bytes(b"raise SystemExit" + plugin.read_bytes()[16:])
    if damage == "changed with its time":
        os.utime(plugin, ns=(status.st_atime_ns, status.st_mtime_ns))
    code = "import hami\nfor each in hami.plugins(load=True): print(each.plugin, each.state, each.error)"
    done = subprocess.run([sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": str(plugin.parents[1])},
                          capture_output=True, text=True, check=True)  # fmt: skip
    (shown,) = (row for row in done.stdout.splitlines() if row.startswith("one "))
    problem = "it is missing" if damage == "missing" else "its content is not what was installed"
    assert shown.startswith(f'one failed "{plugin}" is damaged: {problem}; reinstall it: pip install --upgrade')


def test_only_this_user_can_change_what_was_compared_with_every_umask(plugin: Path, tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        recorded_files.require_whole("acme-cv")
    finally:
        os.umask(before)
    made = [tmp_path / "cache" / "hami" / "checked", tmp_path / "cache" / "hami", tmp_path / "cache"]
    assert [stat.S_IMODE(folder.stat().st_mode) for folder in made] == [0o700] * 3


def test_a_damaged_memory_of_checks_is_written_again(plugin: Path, tmp_path: Path) -> None:
    memory = tmp_path / "cache" / "hami" / "checked" / "acme-cv.json"
    for content in ("{", "[]", '{"listed": 1}', '{"files": 3}'):
        memory.parent.mkdir(parents=True, exist_ok=True)
        memory.write_text(content)
        recorded_files.require_whole("acme-cv")
        assert str(plugin) in json.loads(memory.read_text())["files"]
    plugin.write_bytes(b"")
    with pytest.raises(hami.PluginError, match=r"one\.py"):
        recorded_files.require_whole("acme-cv")
