"""Runs the tests with the oldest and the newest supported rapidocr, each in a new virtual environment.

    python tests/edges.py --find-links DIST     # DIST: wheels of hami-core, hami-image, hami-onnx, hami-ocr

The range of versions is that of pyproject.toml. `--tested-here` says that the version in the environment of this Python
is tested already. All other arguments are passed to pip, to find the wheels of hami. The exit status is 0 if both edges
pass.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import venv
from importlib.metadata import version
from pathlib import Path

HERE = Path(__file__).resolve().parent
RANGE = re.compile(r'"rapidocr>=(?P<low>[0-9.]+),<(?P<high>[0-9.]+)"')


def edges() -> dict[str, str]:
    """Return the requirement for pip at each end of the range."""
    match = RANGE.search((HERE.parent / "pyproject.toml").read_text())
    if match is None:
        raise SystemExit("pyproject.toml has no dependency of the form rapidocr>=LOW,<HIGH")
    low, high = match["low"], match["high"]
    return {"oldest": f"rapidocr=={low}", "newest": f"rapidocr>={low},<{high}"}


def passes(edge: str, requirement: str, pip_arguments: list[str], tested: dict[str, bool]) -> bool:
    """Install and test one edge. `tested` holds the result of each version, in case both edges are the same one."""
    with tempfile.TemporaryDirectory(prefix="hami-ocr-edge-") as folder:
        venv.create(folder, with_pip=True)
        python = str(Path(folder) / "bin" / "python")
        print(f"{edge}: installing {requirement}", flush=True)
        install = [python, "-m", "pip", "install", "--quiet", *pip_arguments, "hami-ocr[test]", requirement]
        if subprocess.run(install).returncode:
            print(f"{edge}: {requirement} cannot be installed", flush=True)
            return False
        print_version = "from importlib.metadata import version; print(version('rapidocr'))"
        used = subprocess.run([python, "-c", print_version], capture_output=True, text=True, check=True).stdout.strip()
        if used in tested:
            print(f"{edge}: rapidocr {used} is already tested", flush=True)
        else:
            print(f"{edge}: testing with rapidocr {used}", flush=True)
            tested[used] = subprocess.run([python, "-m", "pytest", "-q", str(HERE)]).returncode == 0
        return tested[used]


def main() -> int:
    arguments = [argument for argument in sys.argv[1:] if argument != "--tested-here"]
    tested = {} if arguments == sys.argv[1:] else {version("rapidocr"): True}
    results = {edge: passes(edge, requirement, arguments, tested) for edge, requirement in edges().items()}
    for edge, passed in results.items():
        print(f"{edge}: {'passed' if passed else 'FAILED'}")
    return 0 if all(results.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
