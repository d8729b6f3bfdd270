"""findings: kept by the content of files, in the cache folder of the user or in memory."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys

import pytest

from hami_model_check import findings
from hami_model_check.findings import (
    cache_folder,
    finding_key,
    load_finding,
    recall,
    remember,
    save_finding,
    stamp_key,
)


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    forget()
    yield tmp_path / "cache" / "hami" / "findings"
    forget()


def forget():
    findings._in_memory.clear()


def test_an_entry_is_found_again_by_another_process(folder):
    save_finding("a", {"verdict": "mixes"})
    forget()
    assert load_finding("a") == {"verdict": "mixes"}
    assert load_finding("b") is None
    assert [path.name for path in folder.iterdir()] == ["a.json"]


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"\xff", b'{"format": 0, "finding": {}}', b'{"format": 1}'])
def test_a_damaged_entry_is_ignored(folder, content):
    save_finding("a", {})
    (folder / "a.json").write_bytes(content)
    forget()
    assert load_finding("a") is None


def test_the_key_depends_on_content_engine_and_settings_and_not_on_the_name(tmp_path):
    for name, content in (("a", b"1"), ("b", b"1"), ("c", b"2")):
        (tmp_path / name).write_bytes(content)
    key = finding_key([tmp_path / "a"], engine="e 1")
    assert finding_key([tmp_path / "b"], engine="e 1") == key
    others = {
        finding_key([tmp_path / "c"], engine="e 1"),
        finding_key([tmp_path / "a"], engine="e 2"),
        finding_key([tmp_path / "a"], engine="e 1", settings=["cuda"]),
        finding_key([tmp_path / "a", tmp_path / "c"], engine="e 1"),
    }
    assert len(others | {key}) == 5


def test_a_file_that_was_rewritten_has_another_key(tmp_path):
    model = tmp_path / "m"
    model.write_bytes(b"1")
    key = finding_key([model], engine="e")
    model.write_bytes(b"2")
    assert finding_key([model], engine="e") != key


def test_a_stamp_is_used_for_files_that_have_not_changed_lately(tmp_path, monkeypatch):
    model = tmp_path / "m"
    model.write_bytes(b"1")
    assert stamp_key([model], engine="e") is None
    monkeypatch.setattr(findings, "_SETTLED_NS", 0)
    key = stamp_key([model], engine="e")
    assert key == stamp_key([model], engine="e")
    assert key != stamp_key([model], engine="e 2")
    model.write_bytes(b"12")
    assert key != stamp_key([model], engine="e")


@pytest.mark.parametrize("place", ["file in the way", "no home"])
def test_without_a_folder_that_can_be_written_entries_are_in_memory(tmp_path, monkeypatch, place):
    if place == "no home":
        monkeypatch.delenv("XDG_CACHE_HOME")
        monkeypatch.setenv("HOME", "/")
        assert cache_folder() is None
    else:
        (tmp_path / "cache").write_text("")
    save_finding("a", {"verdict": "mixes"})
    assert load_finding("a") == {"verdict": "mixes"}


def test_processes_that_write_at_once_leave_one_whole_entry(folder):
    code = (
        "from hami_model_check.findings import save_finding\n"
        "for i in range(100): save_finding('a', {'number': i, 'filler': 'x' * 5000})"
    )
    writers = [subprocess.Popen([sys.executable, "-c", code], env=os.environ) for _ in range(3)]
    assert [writer.wait() for writer in writers] == [0, 0, 0]
    assert json.loads((folder / "a.json").read_text())["finding"]["number"] == 99
    assert [path.name for path in folder.iterdir()] == ["a.json"]


def test_the_oldest_entries_are_deleted(folder, monkeypatch):
    monkeypatch.setattr(findings, "MOST_ENTRIES", 10)
    for number in range(30):
        save_finding(f"{number}", {})
    assert len(list(folder.iterdir())) <= 10
    assert (folder / "29.json").exists()


def test_what_is_remembered_is_recalled_for_a_copy_of_the_file_and_not_for_another_engine(tmp_path):
    model, copy = tmp_path / "m", tmp_path / "copy"
    model.write_bytes(b"1")
    assert recall([model], engine="e 1") is None
    remember([model], {"independent": True}, engine="e 1")
    copy.write_bytes(b"1")
    forget()
    assert recall([model], engine="e 1") == recall([copy], engine="e 1") == {"independent": True}
    assert recall([model], engine="e 2") is None


def test_what_is_remembered_of_a_settled_file_is_recalled_without_reading_it(tmp_path, monkeypatch):
    model = tmp_path / "m"
    model.write_bytes(b"1")
    monkeypatch.setattr(findings, "_SETTLED_NS", 0)
    remember([model], {"independent": True}, engine="e 1")
    monkeypatch.delattr(findings, "_hash_of_file")
    assert recall([model], engine="e 1") == {"independent": True}


def test_only_this_user_can_write_findings_with_every_umask(folder):
    before = os.umask(0)
    try:
        save_finding("a", {"verdict": "independent"})
    finally:
        os.umask(before)
    made = [folder, folder.parent, folder.parent.parent]
    assert [stat.S_IMODE(each.stat().st_mode) for each in made] == [0o700] * 3
