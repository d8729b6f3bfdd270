"""One command measures the pipeline `ocr`, and shows what limits it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from trace_tables import answers

from hami_tools.trace.file import read_trace

NODES = {"decode", "detect", "crop", "recognise", "lines"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder in which the command has run, with what it printed as `printed.txt`."""
    for module in ("hami_ocr", "matplotlib"):
        pytest.importorskip(module)
    cv2 = pytest.importorskip("cv2")
    skimage = pytest.importorskip("skimage")
    page = cv2.imread(str(Path(skimage.__file__).parent / "data" / "page.png"))
    folder = tmp_path_factory.mktemp("ocr")
    (folder / "pages").mkdir()
    # As wide as high: the detector enlarges the shorter side to 736 pixels.
    assert cv2.imwrite(str(folder / "pages" / "page.png"), page[:, : len(page)])
    command = "bench ocr --input pages --clients 1,2 --seconds 0.2 --trace run.pftrace --output result.json"
    files = "--plot plot.svg --html result.html"
    done = subprocess.run(
        [sys.executable, "-m", "hami", *command.split(), *files.split()],
        capture_output=True,
        text=True,
        cwd=folder,
        timeout=300,
    )
    assert (done.returncode, done.stderr) == (0, "")
    (folder / "printed.txt").write_text(done.stdout, "utf-8")
    return folder


def test_the_table_has_a_row_for_each_load_the_ceiling_and_the_causes(folder: Path) -> None:
    printed = (folder / "printed.txt").read_text("utf-8")
    result: dict[str, Any] = json.loads((folder / "result.json").read_text("utf-8"))
    assert [point["load"] for point in result["points"]] == ["clients 1", "clients 2"]
    assert "clients 2" in printed
    assert "plateau batch" in printed
    assert {ceiling["node"] for ceiling in result["ceilings"]} <= NODES
    for entry in result["losses"]:
        gap = entry["ceiling"] - entry["achieved"]
        assert sum(entry["causes"].values()) == pytest.approx(gap, abs=0.05 * abs(gap))


@pytest.mark.parametrize("engine", ["sqlite", "perfetto"])
def test_the_timeline_answers_the_questions_of_its_page(engine: str, folder: Path) -> None:
    trace = read_trace(folder / "run.pftrace")
    slowest, outcomes, waits, backends, left = answers(engine, folder / "run.pftrace")
    assert [row["outcome"] for row in outcomes] == ["completed"]
    assert outcomes[0]["requests"] == len(trace.of("request")) >= len(slowest) > 0
    assert {row["node"] for row in waits} <= NODES
    assert {"DecodeMat", "DetectText", "CropLines", "RecognizeText", "GatherLines"} <= {
        row["backend"] for row in backends
    }
    assert left == []


def test_the_plot_and_the_page_are_files_that_load_nothing(folder: Path) -> None:
    plot, page = ((folder / name).read_text("utf-8") for name in ("plot.svg", "result.html"))
    assert "requests per second" in plot
    for name in NODES:
        assert name in page
    assert "<script" not in page
    assert "src=" not in page
