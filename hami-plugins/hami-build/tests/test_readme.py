"""The README is true: its commands exist, its table lists every check, its quality file is valid."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from hami_build import checks, project, quality, sources
from hami_build.commands import main

README = (Path(__file__).resolve().parent.parent / "README.md").read_text("utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", README, re.DOTALL | re.MULTILINE)


def test_the_table_lists_every_check() -> None:
    rows = re.findall(r"^\| (bronze|silver|gold) \| ([^|]+) \|", README, re.MULTILINE)
    listed = {(grade, name.strip()) for grade, names in rows for name in names.split(",")}
    assert listed - {("bronze", "archive")} == {
        (grade, name) for grade, group in checks.CHECKS.items() for name, _ in group
    }


def test_the_quality_file_is_valid() -> None:
    found = quality.parse(blocks("toml")[1], "README.md")
    assert set(found.samples) == {"AcmeInc", "AcmeResize"}
    assert set(found.exempt) == {"links"}


def test_the_table_of_a_source_is_valid(tmp_path: Path) -> None:
    text = '[build-system]\nbuild-backend = "x"\n[project]\nname = "acme-inc"\n'
    (tmp_path / "pyproject.toml").write_text(text + blocks("toml")[0], "utf-8")
    (source,) = sources.declared(project.read(tmp_path))
    assert (source.name, source.project, source.release) == ("llhttp", "httptools", "0.9.0")


@pytest.mark.parametrize("command", [text for text in blocks("") if text.startswith("hami-build ")])
def test_the_commands_have_these_options(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = shlex.split(command)[1:]
    with pytest.raises(SystemExit) as ended:
        main([words[0], "--help"])
    assert ended.value.code == 0
    text = capsys.readouterr().out
    assert all(word in text for word in words if word.startswith("--"))
