"""The README names what exists, and the programs of the documentation run with a small detector."""

from __future__ import annotations

import re
from pathlib import Path

import cv2
import hami
import pytest
from hami.cli import main
from small_models import picture

from hami_vision.heads import ALIASES, HEADS

FOLDER = Path(__file__).resolve().parent.parent
README = (FOLDER / "README.md").read_text()
PAGES = FOLDER.parents[1] / "hami-core" / "docs" / "howto"


def programs(text: str) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)


@pytest.fixture
def run(detector, tmp_path, monkeypatch):
    """run(program) with the files that it names, of red squares for people."""
    monkeypatch.chdir(tmp_path)
    video = cv2.VideoWriter("street.webm", cv2.VideoWriter.fourcc(*"VP90"), 25, (640, 640))
    assert video.isOpened()
    for i in range(16):
        video.write(cv2.resize(picture(("red", 3 * i, 24)), (640, 640), interpolation=cv2.INTER_NEAREST))
    video.release()
    cv2.imwrite("street.jpg", cv2.resize(picture(("red", 24, 24)), (640, 640)))

    def run(program: str) -> dict:
        named = program.replace("yolo11n.onnx", str(detector)).replace(
            "coco.txt", str(detector.with_name("labels.txt"))
        )
        names: dict = {}
        exec(named, names)
        return names

    return run


def test_the_program_of_the_readme_runs(run):
    (program,) = programs(README)
    names = run(program)
    assert [names["found"].name_of(i) for i in range(len(names["found"]))] == ["red"]
    assert names["drawn"].shape == (640, 640, 3)


@pytest.fixture
def page():
    """page(name): the programs of a page; the first one has at most ten lines."""

    def of(name: str) -> list[str]:
        if not PAGES.exists():
            pytest.skip("the documentation is not in the source distribution of this package")
        found = programs((PAGES / name).read_text("utf-8"))
        assert len([line for line in found[0].splitlines() if line]) <= 10
        return found

    return of


def test_the_programs_of_the_page_on_counting_run(page, run, capsys):
    first, second, third = page("detect-track-count.md")
    run(first)
    assert capsys.readouterr().out.endswith("{'door': {'in': 1, 'out': 0}}\n")
    run(second)
    assert capsys.readouterr().out.startswith("red ")
    assert Path("found.png").exists()
    assert len([line for line in third.splitlines() if line]) <= 15
    cameras = third.replace("rtsp://camera1/live", "street.webm").replace("rtsp://camera2/live", "street.jpg")
    run(cameras.replace(', take="latest"', ""))
    lines = capsys.readouterr().out.splitlines()
    assert {line.split()[0] for line in lines} == {"door", "yard"}
    assert any(line.endswith("{'in': 1, 'out': 0}") for line in lines if line.startswith("door"))


def test_the_programs_of_the_page_on_results_run(page, run, capsys):
    first, second, third = page("save-results.md")
    run(first)
    assert {file.name for file in Path("found").iterdir()} == {"street.webm", "street.jsonl", "run.json"}
    run(second)
    assert len(Path("labels.csv").read_text().splitlines()) > 10
    assert Path("found.webm").stat().st_size > 1000
    run(third.replace("8088", "0").replace('"found"', '"more"'))
    printed = capsys.readouterr().out.splitlines()
    assert len(printed) == 17
    assert printed[-1] == "SinkState(taken=16, dropped=0, failed=0, reason='')"
    assert {file.name for file in Path("more").iterdir()} == {"street.webm", "street.jsonl", "run.json"}


def test_the_command_of_the_table_draws_the_layers_of_a_model(detector, tmp_path, monkeypatch):
    pytest.importorskip("hami_tools", reason="hami-tools is not installed")
    (command,) = re.findall(r"`hami (graph model\.onnx .*?)`", README)
    monkeypatch.chdir(tmp_path)
    Path("model.onnx").write_bytes(detector.read_bytes())
    assert main(command.split()) == 0
    assert {"Conv", "Gather"} <= set(re.findall(r"\w+", Path("model.html").read_text()))


@pytest.mark.parametrize(
    "backend", ["CountHeads", "CountObjects", "DecodeDetections", "LetterBoxInput", "TrackObjects"]
)
def test_each_parameter_is_named(backend):
    (section,) = re.findall(rf"^## {backend}\n(.*?)(?=^## |\Z)", README, re.DOTALL | re.MULTILINE)
    for parameter in hami.backends(load=True)[backend].params:
        assert f"`{parameter['name']}`" in section


def test_each_head_is_named():
    for head in [*HEADS, *(alias for alias in ALIASES if not alias.startswith("yolov1"))]:
        assert f"`{head}`" in README
