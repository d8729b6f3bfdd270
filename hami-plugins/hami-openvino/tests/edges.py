"""Runs the tests with the oldest and the newest openvino that pyproject.toml allows, each in a new environment.

    python tests/edges.py --find-links DIST     # DIST: wheels of hami-core and hami-openvino

`--tested-here` says that the version in the environment of this Python is tested already. The other arguments go to pip
and name the source of HAMi's wheels. The exit status is 0 if the tests pass with both versions. The oldest version is
skipped on a Python for which it has no wheel.
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
RANGE = re.compile(r'"openvino>=([0-9.]+)"')
NEWEST_PYTHON_OF_OLDEST = (3, 12)


def edges() -> dict[str, str]:
    """Return the pip requirement of the oldest and of the newest version."""
    found = RANGE.search((HERE.parent / "pyproject.toml").read_text())
    if found is None:
        raise SystemExit("pyproject.toml must have a dependency of the form openvino>=VERSION")
    newest = {"newest": f"openvino>={found[1]}"}
    if sys.version_info[:2] > NEWEST_PYTHON_OF_OLDEST:
        print(f"oldest: openvino {found[1]} has no wheel for this Python")
        return newest
    return {"oldest": f"openvino=={found[1]}.*", **newest}


def passes(edge: str, requirement: str, pip_arguments: list[str], tested: str) -> bool:
    """Install and test one edge; `tested` is a version that needs no test."""
    with tempfile.TemporaryDirectory(prefix="hami-openvino-edge-") as folder:
        venv.create(folder, with_pip=True)
        python = str(Path(folder) / "bin" / "python")
        print(f"{edge}: installing {requirement}", flush=True)
        install = [python, "-m", "pip", "install", "--quiet", *pip_arguments, "hami-openvino[test]", requirement]
        if subprocess.run(install).returncode:
            print(f"{edge}: {requirement} cannot be installed", flush=True)
            return False
        print_version = "from importlib.metadata import version; print(version('openvino'))"
        used = subprocess.run([python, "-c", print_version], capture_output=True, text=True, check=True).stdout.strip()
        print(f"{edge}: openvino {used}{' is already tested' if used == tested else ''}", flush=True)
        if used == tested:
            return True
        return subprocess.run([python, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(HERE)]).returncode == 0


def main() -> int:
    arguments = [argument for argument in sys.argv[1:] if argument != "--tested-here"]
    tested = "" if arguments == sys.argv[1:] else version("openvino")
    results = {edge: passes(edge, requirement, arguments, tested) for edge, requirement in edges().items()}
    for edge, passed in results.items():
        print(f"{edge}: {'passed' if passed else 'FAILED'}")
    return 0 if all(results.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
