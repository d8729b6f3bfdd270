"""Paths that are not UTF-8 work where the system reads them, and are shown with escapes."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import hami
import pytest
from conftest import Run, Site
from hami import _core
from hami._text import printable

ODD = os.fsdecode(b"odd\xff")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder whose name is not UTF-8, with a configuration of such a name and one with a mistake."""
    folder = tmp_path / ODD
    folder.mkdir()
    (folder / f"{ODD}.toml").write_text('[a]\nbackend = "Identity"\n')
    (folder / "extends.toml").write_text('extends = "wrong.toml"\n')
    (folder / "wrong.toml").write_text('[a]\nbackend = "Identity"\ncolour = 1\n')
    return folder


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain é", "plain é"),
        (ODD, "odd\\xff"),
        ("é\ud800", "é\\ud800"),
        (Path(ODD) / "p.toml", "odd\\xff/p.toml"),
    ],
)
def test_what_utf8_cannot_represent_is_escaped(text: Any, shown: str) -> None:
    assert printable(text) == shown


def test_a_configuration_whose_path_is_not_utf8_works(folder: Path) -> None:
    for source in (folder / f"{ODD}.toml", str(folder / f"{ODD}.toml")):
        with hami.pipe(source) as pipe:
            assert pipe({"data": 1})["result"] == 1


@pytest.mark.parametrize("name", ["wrong.toml", "extends.toml"])
def test_the_place_of_a_mistake_shows_a_path_that_is_not_utf8(folder: Path, name: str) -> None:
    with pytest.raises(hami.ConfigError) as caught:
        hami.pipe(folder / name)
    assert f'colour = 1   (node "a", {folder.parent}/odd\\xff/wrong.toml:3)\n' in str(caught.value)


def test_a_neighbour_whose_name_is_not_utf8_does_not_break_the_message_for_a_missing_file(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    for name, hint in (
        ("wrng.toml", '; did you mean "wrong.toml"?'),
        (f"{ODD}{ODD}.toml", f" (looked for {folder.parent}/odd\\xff/odd\\xffodd\\xff.toml)"),
    ):
        with pytest.raises(hami.ConfigError) as caught:
            hami.pipe(name)
        assert str(caught.value) == f'cannot read "{printable(name)}": No such file or directory{hint}'


def test_the_commands_show_paths_that_are_not_utf8(folder: Path, hami_command: Run) -> None:
    source = folder / f"{ODD}.toml"
    shown = f"{folder.parent}/odd\\xff"
    done = hami_command("check", str(source))
    assert (done.returncode, done.stdout) == (0, f"{shown}/odd\\xff.toml: no problems, 1 node\n")
    assert hami_command("show-config", str(source)).stdout.startswith(f"# {shown}/odd\\xff.toml\n")
    done = hami_command("run", str(source), str(folder / "wrong.toml"), str(folder), "--json")
    printed = [json.loads(line) for line in done.stdout.splitlines()]
    names = ("wrong.toml", "extends.toml", "odd\\xff.toml", "wrong.toml")
    assert [one["input"] for one in printed] == [f"{shown}/{name}" for name in names]
    done = hami_command("run", str(source), "--data", "1", "--import", f"{ODD}.py")
    assert (done.returncode, done.stderr) == (1, 'error: cannot import "odd\\xff.py": no such file\n')


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ({"backend": "Log", "message": Path(ODD)}, '"message" of node "default" is not valid text: '),
        (
            {"a": {"backend": "Identity"}, "providers": {ODD: "x"}},
            'the keys of [providers] must be text, got "odd\\xff"',
        ),
        ({"extends": f"{ODD}.toml"}, '"extends" is not valid text: '),
        (f"S[{ODD}]", '"backend" of node "default" is not valid text: '),
    ],
)
def test_a_configuration_with_text_that_is_not_utf8_is_an_error(source: Any, message: str) -> None:
    with pytest.raises(hami.ConfigError) as caught:
        hami.pipe(source)
    assert str(caught.value).startswith(message)


def test_other_names_that_are_not_utf8_are_errors_of_hami(hami_command: Run) -> None:
    with pytest.raises(hami.ConfigError, match='the expression of "X" must be a str'):
        hami.generate("X", f"S[{ODD}]")
    assert _core.is_defined("X") is False
    assert 'error: backend "odd' in hami_command("backends", ODD).stderr


def test_a_plugin_may_be_installed_in_a_folder_whose_path_is_not_utf8(folder: Path, hami_command: Run) -> None:
    site = Site(folder)
    site.install("acme-good")
    done = hami_command("run", "AcmeAdd", "--data", "1", site=folder)
    assert (done.stdout, done.stderr) == ("2\n", "")
    (folder / "acme_good" / "plugin.py").write_text("raise ValueError(__file__)")
    done = hami_command("run", "AcmeAdd", "--data", "1", site=folder)
    reason = f"failed to load: ValueError: {folder.parent}/odd\\xff/acme_good/plugin.py"
    assert f'backend "AcmeAdd" is provided by acme-good 1.2.0, which {reason}\n' in done.stderr
