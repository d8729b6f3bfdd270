"""Downloads the third-party requirements of our wheels once per Python, so that install tests need no network."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Sequence
from pathlib import Path

from hami_build.interpreters import Interpreter
from hami_build.steps import Failure, exclusive, run, step

from . import environments, plugin_wheels, wheel_env
from .paths import CACHE

STAMP = "requirements.txt"


def requirements(wheels: Sequence[Path]) -> list[str]:
    """Return the third-party requirements of `wheels`, without extras."""
    from packaging.requirements import Requirement  # of the tools' environment
    from packaging.utils import canonicalize_name

    ours = {"hami-core", *(plugin.name for plugin in plugin_wheels.folders())}
    found = set()
    for wheel in wheels:
        lines = wheel_env.requirements_of(wheel).splitlines()
        asked = (line.removeprefix("Requires-Dist:").strip() for line in lines if line.startswith("Requires-Dist:"))
        needed = (text for text in asked if "extra ==" not in text)
        found |= {text for text in needed if canonicalize_name(Requirement(text).name) not in ours}
    return sorted(found)


def fetch(interpreter: Interpreter, wanted: Sequence[str]) -> list[Path]:
    """Return wheels of `wanted` and their requirements for `interpreter`, downloaded now or by an earlier run."""
    text = "".join(f"{requirement}\n" for requirement in wanted)
    key = hashlib.sha256(text.encode()).hexdigest()[:12]
    folder = CACHE / "wheelhouse" / f"{interpreter.tag}-{key}"
    with exclusive(f"wheelhouse-{folder.name}"):
        if not (folder / STAMP).is_file():
            pip = [environments.ensure("installers"), "-m", "pip", "--python", interpreter.executable]
            shutil.rmtree(folder, ignore_errors=True)
            with step(f"fetching {', '.join(wanted)} for {interpreter.tag}"):
                try:
                    run([*pip, "wheel", "--wheel-dir", folder, *wanted], log=f"wheelhouse-{interpreter.tag}")
                except Failure as failure:
                    raise Failure(f"{failure}\n{environments.INDEX_HINT}") from failure
            (folder / STAMP).write_text(text)
    return sorted(folder.glob("*.whl"))
