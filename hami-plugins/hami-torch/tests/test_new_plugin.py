"""A project of `hami new-plugin --torch` passes its own tests."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path


def test_the_tests_of_a_torch_project_pass(tmp_path: Path) -> None:
    project, site = tmp_path / "acme-fresh", tmp_path / "site"
    command = [sys.executable, "-m", "hami", "new-plugin", "acme-fresh", "--torch", "--folder", str(project)]
    subprocess.run(command, check=True, capture_output=True)
    shutil.copytree(project / "python", site)
    info = site / "acme_fresh-0.1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: acme-fresh\nVersion: 0.1.0\n")
    points = "[hami.backends]\nAcmeFresh = acme_fresh.plugin\n[hami]\nfresh = acme_fresh.plugin\n"
    (info / "entry_points.txt").write_text(points)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests"],
        cwd=project,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(site), *sys.path])},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "4 passed, 1 skipped" in done.stdout or "5 passed" in done.stdout  # with a GPU
