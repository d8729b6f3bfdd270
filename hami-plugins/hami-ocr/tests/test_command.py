"""The command `hami run ocr page.png`."""

from __future__ import annotations

import subprocess
import sys


def hami_run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "hami", "run", *arguments], capture_output=True, text=True)


def test_the_command_prints_the_lines_of_the_page(page_file):
    done = hami_run("ocr", str(page_file))
    assert done.returncode == 0, done.stderr
    assert "Region-based segmentation" in done.stdout
    assert "histogram of grey values:" in done.stdout


def test_the_command_fails_for_a_file_that_is_not_an_image(tmp_path):
    text = tmp_path / "page.txt"
    text.write_text("a text")
    done = hami_run("ocr", str(text))
    assert done.returncode != 0
    assert 'DecodeMat: "data" is not an image file: 6 bytes that start with' in done.stderr
