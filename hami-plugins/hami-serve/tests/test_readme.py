"""The code in the README runs as written."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import hami

from hami_serve import AllRounder

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

README = Path(__file__).resolve().parent.parent / "README.md"


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", README.read_text("utf-8"), re.DOTALL | re.MULTILINE)


def test_the_examples_print_what_the_page_shows(capsys):
    names: dict[str, object] = {}
    for code, printed in zip(blocks("python"), blocks("text"), strict=True):
        exec(compile(code, str(README), "exec"), names)
        assert capsys.readouterr().out == printed


def test_the_file_of_models_is_one_that_can_be_loaded():
    text, *_ = blocks("toml")
    with AllRounder(tomllib.loads(text)) as rounder:
        assert rounder.components() == ["double", "classify", "ranked"]
        assert rounder.infer({"data": 7}, ["latest"]) == {"latest": {"data": 7, "result": 7}}


def test_the_components_that_declare_text_and_bytes_are_ones_that_can_be_loaded():
    _, text, _ = blocks("toml")
    for name in ("Greet", "Thumbnail"):
        hami.generate(name, "Identity")
    with AllRounder(tomllib.loads(text)) as rounder:
        models = {model.handle.component: model for model in rounder.registry.models()}
        assert (models["greet"].takes_text("name"), models["thumbnail"].takes_text("picture")) == (True, False)


def test_the_node_with_a_remote_model_is_one_that_hami_accepts(tmp_path):
    *_, text = blocks("toml")
    (tmp_path / "detect.toml").write_text(text)
    command = [sys.executable, "-m", "hami", "check", "detect.toml"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
