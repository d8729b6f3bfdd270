"""The pictures of pipelines in the documents are those of the configurations that the documents show."""

from __future__ import annotations

import subprocess
import sys

import pytest
from doc_blocks import ROOT


def test_the_pictures_in_the_documents_are_current() -> None:
    for module in ("hami_image", "numpy"):
        pytest.importorskip(module)
    done = subprocess.run([sys.executable, ROOT / "ci" / "pictures.py", "--check"], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
