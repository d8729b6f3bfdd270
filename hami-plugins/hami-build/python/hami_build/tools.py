"""Runs the checks of well-known tools: twine, check-wheel-contents, auditwheel."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

from hami_build.errors import Failure

HINT = "pip install 'hami-build[check]'"


class Missing(Failure):
    """A tool is not installed."""


def run(module: str, *arguments: str | Path) -> tuple[int, str]:
    """Run `python -m module` and return its exit status and output; raises Missing if it is not installed."""
    if importlib.util.find_spec(module) is None:
        raise Missing(f"{module.replace('_', '-')} is not installed; {HINT}")
    command = [sys.executable, "-m", module, *map(str, arguments)]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    return done.returncode, done.stdout


def twine(file: Path) -> tuple[bool, str]:
    """An index accepts the metadata, and can render the README."""
    status, text = run("twine", "check", "--strict", file)
    said = [line.strip() for line in text.splitlines() if re.match(r"\s*(ERROR|WARNING)", line)]
    return status == 0, "passed" if status == 0 else "; ".join(said) or text.strip()


def contents(wheel: Path, *ignored: str) -> tuple[bool, str]:
    """The wheel has no duplicate, empty or stray files, but for the rules that are `ignored`."""
    options = ["--ignore", ",".join(ignored)] if ignored else []
    status, text = run("check_wheel_contents", "--no-config", *options, wheel)
    found = re.findall(r"\.whl: (W\d+: .+)$", text, re.MULTILINE)
    return status == 0, "passed" if status == 0 else "; ".join(found) or text.strip()


def auditwheel(wheel: Path) -> str:
    """Return the oldest platform tag that the wheel fulfils."""
    _, text = run("auditwheel", "show", wheel)
    text = " ".join(text.split())
    found = re.search(r'consistent with the following platform tag: "([^"]+)"', text)
    return found.group(1) if found else text[:200]
