"""The pictures in the documents are those of the configurations and results that the documents show."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from doc_blocks import ROOT

HOWTO = ROOT / "hami-core" / "docs" / "howto"


def pictures(*arguments: str) -> tuple[int, str, str]:
    """Run the script that makes them; return its status, output and errors."""
    for module in ("hami_image", "hami_ocr", "numpy", "matplotlib"):
        pytest.importorskip(module)
    command = [sys.executable, str(ROOT / "ci" / "pictures.py"), *arguments]
    done = subprocess.run(command, capture_output=True, text=True)
    return done.returncode, done.stdout, done.stderr


def test_the_pictures_in_the_documents_are_current() -> None:
    assert pictures("--check") == (0, "", "")


def test_a_picture_that_is_not_current_is_named_and_written_again(tmp_path: Path) -> None:
    folder = tmp_path / "howto"
    shutil.copytree(HOWTO, folder)
    (folder / "limits-ocr.svg").write_text("old", "utf-8")
    (folder / "limits-ocr-loads.svg").unlink()
    status, printed, _ = pictures("--check", str(folder))
    assert status == 1
    assert printed.count("is not current; run python ci/pictures.py") == 2
    assert pictures(str(folder))[0] == 0
    assert pictures("--check", str(folder)) == (0, "", "")


def test_a_document_without_its_configuration_is_an_error(tmp_path: Path) -> None:
    folder = tmp_path / "howto"
    shutil.copytree(HOWTO, folder)
    (folder / "find-what-limits-your-pipeline.md").write_text("# Nothing\n", "utf-8")
    assert pictures("--check", str(folder))[0] == 1
