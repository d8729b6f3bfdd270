"""Files with native code that configurations name: the allow list of the process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import hami
import pytest


def refusal(path: Path | str) -> str:
    with pytest.raises(hami.ConfigError) as raised:
        hami.native.check_library(path, "library of Engine")
    return str(raised.value)


def test_a_library_is_refused_until_it_is_allowed(tmp_path: Path) -> None:
    library = tmp_path / "engine.so"
    assert refusal(library) == (
        "library of Engine loads native code, which a configuration may do only from allowed files; "
        f'allow "{library}" by HAMI_ALLOWED_LIBRARIES in the environment, or by hami.native.allow_library'
    )
    hami.native.allow_library(library)
    hami.native.check_library(library, "library of Engine")
    assert str(tmp_path / "other.so") in refusal(tmp_path / "other.so")


def test_the_environment_allows_files_and_folders(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    code = (
        "import hami, sys\n"
        "for path in sys.argv[1:]:\n"
        "    try: hami.native.check_library(path, 'x')\n"
        "    except hami.ConfigError: print(path)"
    )
    paths = [tmp_path / name for name in ("a.so", "folder/b.so", "c.so")]
    environment = {**os.environ, "HAMI_ALLOWED_LIBRARIES": f"{paths[0]}::{tmp_path / 'folder'}:libsystem.so"}
    done = subprocess.run(
        [sys.executable, "-c", code, *map(str, paths), "libsystem.so"],
        capture_output=True,
        text=True,
        check=True,
        env=environment,
    )
    assert done.stdout == f"{paths[2]}\n"


def test_a_path_that_is_not_utf8_is_shown(tmp_path: Path) -> None:
    library = os.fsdecode(os.fsencode(tmp_path) + b"/engine\xff.so")
    assert f"{tmp_path}/engine\\xff.so" in refusal(library)
    hami.native.allow_library(library)
    hami.native.check_library(library, "library of Engine")
