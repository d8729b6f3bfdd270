"""Paths in configurations: reference/configuration.md, "Paths"."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import hami
import pytest
from conftest import Run
from rows import refused


@hami.register("TestShows")
class Shows(hami.Backend):
    file: hami.types.FilePath | None = None
    path: Path | None = None
    text: str = ""

    def forward(self, batch: list[Any]) -> None:
        for item in batch:
            item["result"] = (self.file and str(self.file), self.path and str(self.path), self.text)


def shown(source: Any) -> tuple[str | None, str | None, str]:
    """Return the values of `file`, `path` and `text` that the backend got."""
    with hami.pipe(source) as pipe:
        result: tuple[str | None, str | None, str] = pipe({"data": None})["result"]
        return result


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder with the subfolders `base` and `own`, a file m.onnx in both, and another current folder."""
    for name in ("base", "own"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "m.onnx").touch()
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    return tmp_path


def write(folder: Path, name: str, text: str) -> Path:
    (folder / name).write_text(text)
    return folder / name


def test_a_relative_path_is_relative_to_the_file_that_contains_it(folder: Path) -> None:
    keys = 'backend = "TestShows"\nfile = "m.onnx"\npath = "./cache/x"\ntext = "m.onnx"\n'
    source = write(folder / "own", "p.toml", keys)
    expected = (str(folder / "own" / "m.onnx"), str(folder / "own" / "cache/x"), "m.onnx")
    assert shown(source) == expected
    assert shown(os.path.relpath(source)) == expected


def test_an_absolute_path_stays_as_it_is(folder: Path) -> None:
    path = folder / "base" / "m.onnx"
    assert shown(write(folder / "own", "p.toml", f'backend = "TestShows"\nfile = "{path}"\n'))[0] == str(path)


def test_each_key_is_relative_to_its_own_file_when_files_extend_each_other(folder: Path) -> None:
    write(folder / "base", "base.toml", '[a]\nbackend = "TestShows"\nfile = "m.onnx"\npath = "b"\n')
    own = write(folder / "own", "own.toml", 'extends = "../base/base.toml"\n[a]\npath = "o"\n')
    assert shown(own)[:2] == (str(folder / "base/m.onnx"), str(folder / "own/o"))


def test_a_path_in_an_expression_belongs_to_the_file_of_the_expression(folder: Path) -> None:
    write(folder / "base", "base.toml", "[a]\nbackend = \"TestShows(file='m.onnx',path=x)\"\n")
    own = write(folder / "own", "own.toml", 'extends = "../base/base.toml"\n')
    assert shown(own)[:2] == (str(folder / "base/m.onnx"), str(folder / "base/x"))


def test_an_argument_of_a_generated_backend_belongs_to_the_file_that_uses_it(folder: Path) -> None:
    hami.generate("TestShowsAgain", "S[TestShows]")
    source = write(folder / "own", "p.toml", "backend = \"TestShowsAgain(file='m.onnx')\"\n")
    assert shown(source)[0] == str(folder / "own/m.onnx")


def test_without_a_file_a_path_is_relative_to_the_current_folder(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder / "own")
    assert shown({"backend": "TestShows", "file": "m.onnx", "path": "x"})[:2] == ("m.onnx", "x")
    assert shown("TestShows(file='m.onnx')")[0] == "m.onnx"
    assert shown({"backend": "TestShows", "text": "${config_dir}/x"})[2] == f"{folder}/own/x"


def test_config_dir_is_the_folder_of_the_file_that_contains_the_text(folder: Path) -> None:
    base = '[global]\nmodels = "${config_dir}/models"\n[a]\nbackend = "TestShows"\ntext = "${models} ${config_dir}"\n'
    write(folder / "base", "base.toml", base)
    own = write(folder / "own", "own.toml", 'extends = "../base/base.toml"\n[a]\npath = "${config_dir}/o"\n')
    assert shown(own) == (None, f"{folder}/own/o", f"{folder}/base/models {folder}/base")


def test_a_file_that_does_not_exist_is_reported_with_its_place_and_full_path(folder: Path) -> None:
    source = write(folder / "own", "p.toml", '[a]\nbackend = "TestShows"\nfile = "absent.onnx"\n')
    assert refused(source) == (
        f'parameter "file" of TestShows: file "absent.onnx" does not exist (looked for {folder}/own/absent.onnx)\n'
        f'  in  file = "absent.onnx"   (node "a", {source}:3)\n'
        "      ^^^^"
    )
    assert refused("TestShows(file='absent.onnx')") == (
        'parameter "file" of TestShows: file "absent.onnx" does not exist '
        f"(looked for {folder}/elsewhere/absent.onnx)\n"
        "  in  TestShows(file='absent.onnx')   (node \"default\")\n"
        "                     ^^^^^^^^^^^^^"
    )


def test_a_folder_and_a_nul_character_are_not_a_file(folder: Path) -> None:
    assert refused({"backend": "TestShows", "file": str(folder)}).splitlines()[0] == (
        f'parameter "file" of TestShows: file "{folder}" is a folder, name a file in it (looked for {folder})'
    )
    assert refused({"backend": "TestShows", "file": "a\0b"}).splitlines()[0] == (
        'parameter "file" of TestShows: the path "a\\x00b" contains a NUL character'
    )


def test_a_relative_path_beside_a_folder_that_is_not_utf8_is_an_error(tmp_path: Path) -> None:
    odd = tmp_path / os.fsdecode(b"odd\xff")
    odd.mkdir()
    source = write(odd, "p.toml", '[a]\nbackend = "TestShows"\npath = "x"\n')
    assert refused(source).splitlines()[0] == (
        '"x" is relative to the folder of its file, whose path is not UTF-8; give an absolute path, '
        "or rename the folder"
    )
    source = write(odd, "q.toml", '[a]\nbackend = "TestShows"\ntext = "${config_dir}"\n')
    assert refused(source).splitlines()[0] == "${config_dir} is a path that is not UTF-8"


def test_hami_check_reports_files_that_do_not_exist(folder: Path, hami_command: Run) -> None:
    lines = (
        "import hami",
        "@hami.register",
        "class Words(hami.Backend):",
        "    one: hami.types.FilePath",
        "    two: hami.types.FilePath",
        "    def forward(self, batch): ...",
    )
    write(folder, "words.py", "\n".join(lines))
    source = write(folder / "own", "p.toml", '[a]\nbackend = "Words"\none = "m.onnx"\ntwo = "n.onnx"\n')
    done = hami_command("check", str(source), "--import", str(folder / "words.py"))
    assert (done.returncode, done.stderr) == (1, "")
    assert done.stdout == (
        f'parameter "two" of Words: file "n.onnx" does not exist (looked for {folder}/own/n.onnx)\n'
        f'  in  two = "n.onnx"   (node "a", {source}:4)\n'
        "      ^^^\n"
        f"\n1 problem in {source}\n"
    )
    done = hami_command("check", str(source), "--import", str(folder / "words.py"), "--set", f"two={source}")
    assert (done.returncode, done.stdout) == (0, f"{source}: no problems, 1 node\n")
