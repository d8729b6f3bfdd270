"""The publisher of a plugin is remembered, and another one is refused until `hami trust` confirms it."""

from __future__ import annotations

import importlib.util
import json
import os
import stat
from pathlib import Path
from typing import Any

import hami
import pytest
import tiny_wheels
from hami.cli import main
from tiny_index import PACKAGES, HamiEnvironment, acme_index

from hami_tools.packages import attestations, publishers
from hami_tools.packages.attestations import Origin, Publisher, Unverified
from hami_tools.packages.installers import Change
from hami_tools.packages.publishers import LOCAL, Remembered, Seen

FILE = "acme_words-1.0-py3-none-any.whl"
GITHUB, OTHER = "https://github.com/acme/words", "https://github.com/evil/words"


def change(server: str = "https://files.example", file: str = FILE, sha256: str = "1") -> Change:
    return Change("acme-words", "", "1.0", f"{server}/{file}", sha256)


@pytest.fixture
def attested(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Return the publishers by hash of the file, which replace verified attestations."""
    found: dict[str, str] = {}

    def publishers_of(origin: Origin) -> list[Publisher]:
        if origin.sha256 not in found:
            raise Unverified(f"there is no attestation of {origin.file}")
        return [Publisher("GitHub", found[origin.sha256], "release.yml")]

    monkeypatch.setattr(attestations, "publishers", publishers_of)
    return found


def install(change: Change) -> None:
    """Do what an installation does with the publisher of a plugin."""
    origins = {change.name: Origin(change.file, change.sha256)} if change.sha256 else {}
    publishers.remember(publishers.require_same([change], origins))


NEWER = "acme_words-1.1-py3-none-any.whl"


@pytest.mark.parametrize(
    ("before", "after", "problem", "option"),
    [
        ((change(), ""), (change(file=NEWER, sha256="2"), ""), "", ""),
        ((change(), ""), (change(file=NEWER, sha256="2"), GITHUB), "", ""),
        ((change(), GITHUB), (change("https://mirror.example", NEWER, "2"), GITHUB), "", ""),
        (
            (change(), ""),
            (change("https://evil.example", NEWER, "2"), ""),
            "acme-words came from https://files.example until now, and this file is from https://evil.example",
            "--source https://evil.example",
        ),
        (
            (change(), ""),
            (change("https://evil.example", NEWER, "2"), OTHER),
            "acme-words came from https://files.example until now, and this file is from https://evil.example",
            f"--publisher {OTHER}",
        ),
        (
            (change(), GITHUB),
            (change(file=NEWER, sha256="2"), OTHER),
            f"acme-words was published by {GITHUB} until now, and this file is from {OTHER}",
            f"--publisher {OTHER}",
        ),
        (
            (change(), GITHUB),
            (change(file=NEWER, sha256="2"), ""),
            f"until now, and this file is from https://files.example (there is no attestation of {NEWER})",
            "--source https://files.example",
        ),
        ((change(), ""), (change(sha256="2"), ""), f"{FILE} has another content than when", "--source https://files"),
        ((change(), ""), (change("file://", f"/srv/{NEWER}", "2"), ""), f"this file is from {LOCAL}", "--source local"),
    ],
)
def test_another_publisher_is_refused_until_it_is_confirmed(
    attested: dict[str, str], before: Any, after: Any, problem: str, option: str, capsys: pytest.CaptureFixture[str]
) -> None:
    attested.update({each.sha256: publisher for each, publisher in (before,) if publisher})
    install(before[0])
    first = publishers.load()
    attested.clear()
    attested.update({after[0].sha256: after[1]} if after[1] else {})
    if not problem:
        return install(after[0])
    with pytest.raises(hami.PluginError) as caught:
        install(after[0])
    assert problem in str(caught.value)
    assert publishers.load() == first
    command = str(caught.value).rpartition("hami trust ")[2]
    assert command.startswith(f"acme-words {option}")
    assert main(["trust", *command.split()]) == 0
    install(after[0])
    assert publishers.load()["acme-words"].sha256 == "2"
    capsys.readouterr()


def test_trust_lists_and_forgets(capsys: pytest.CaptureFixture[str], attested: dict[str, str]) -> None:
    assert main(["trust"]) == 0
    assert capsys.readouterr().out.startswith("no publishers are remembered yet")
    attested["1"] = GITHUB
    install(change())
    assert main(["trust"]) == 0
    assert capsys.readouterr().out.splitlines()[1].split() == ["acme-words", GITHUB, "attested", FILE]
    assert main(["trust", "Acme_Words", "--forget"]) == 0
    assert publishers.load() == {}
    assert main(["trust", "acme-words", "--forget"]) == 1
    assert main(["trust", "acme-words"]) == 1
    assert "say whom to trust for acme-words" in capsys.readouterr().err
    assert main(["trust", "acme-words", "--source", "files.example"]) == 1
    assert "--source takes a server such as https://files.example, or local" in capsys.readouterr().err


@pytest.mark.parametrize("text", ["", "[]", '{"format": 2}', '{"format": 1, "plugins": [1]}', "[" * 100_000])
def test_a_damaged_memory_is_an_error_and_not_an_empty_one(text: str) -> None:
    publishers.path().parent.mkdir(parents=True)
    publishers.path().write_text(text)
    with pytest.raises(hami.PluginError, match=r"publishers.json, which remembers the publishers of plugins, cann"):
        publishers.load()


def test_a_memory_that_cannot_be_written_does_not_stop_an_installation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", "/proc/none")
    publishers.remember(Seen({}, {"acme-words": Remembered("https://files.example")}))


@pytest.mark.skipif(importlib.util.find_spec("pip") is None, reason="this environment has no pip")
def test_install_refuses_another_source_and_takes_a_wheel_that_was_built_again_here(tmp_path: Path) -> None:
    index = acme_index(tmp_path)
    here = HamiEnvironment(tmp_path / "env", "pip", *PACKAGES)
    assert here.hami("trust", "acme-one", "--source", "https://files.example").returncode == 0
    required = here.hami("install", "acme-two", "--index", index)
    assert "acme-one came from https://files.example until now" in required.stderr
    assert here.hami("trust", "acme-one", "--forget").returncode == 0
    assert here.hami("install", "acme-two", "--index", index).returncode == 0
    known = json.loads(here.hami("trust", "--json").stdout)
    assert {name: entry["source"] for name, entry in known.items()} == {"acme-two": LOCAL}
    assert here.hami("uninstall", "acme-two").returncode == 0
    tiny_wheels.plugin(tmp_path / "wheels", "acme-two", "1.0.0", requires="acme-one>=0")  # the same name
    done = here.hami("install", "acme-two", "--from", str(tmp_path / "wheels"))
    assert done.returncode == 0, done.stderr
    assert list(here.site.glob("acme_two*"))


def test_only_this_user_can_change_the_remembered_publishers_with_every_umask(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "home" / "config"))
    before = os.umask(0)
    try:
        publishers.remember(Seen({}, {"acme-words": Remembered("https://files.example")}))
    finally:
        os.umask(before)
    made = tmp_path / "home" / "config" / "hami"
    folders = [made, made.parent, made.parent.parent]
    assert [stat.S_IMODE(folder.stat().st_mode) for folder in folders] == [0o700] * 3
