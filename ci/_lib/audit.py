"""Audits the files of this repository: `hami_build.audit`, and what only hami-core and its plugins promise."""

from __future__ import annotations

import re
import subprocess
import sysconfig
import tempfile
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from hami_build import archive, audit, interpreters, wheel_file, zig
from hami_build.audit import Check, Finding
from hami_build.binary import ENTRY
from hami_build.interpreters import Interpreter
from hami_build.steps import Failure, environment, step

from .paths import ROOT

Cores = Mapping[Path, Interpreter]  # wheels of the core, each with a CPython of this machine that can import it
CORE_ENTRY = "PyInit__core"
CORE_SIZES = {"size": 1_200_000, "size when installed": 4_000_000}
# Of check-wheel-contents: the templates of `hami new-plugin` contain equal files, and PyInstaller gives its hooks
# names that no module can have.
IGNORED = ("W002", "W004")
# The core names itself in messages about the contract with native plugins.
BINARY_VERSION = re.compile(rb"hami-core (\d[0-9A-Za-z.]*) serves ")
LOAD = """
import functools, importlib, sys
sys.path[:0] = sys.argv[1:3]
for target in sys.argv[3:]:
    module, _, attribute = target.partition(":")
    functools.reduce(getattr, filter(None, attribute.split(".")), importlib.import_module(module))
"""


def rules(file: Path) -> audit.Rules:
    """Return what holds for one of our files; the changelog of the core is in the root folder."""
    name = file.name.partition("-")[0]
    if name == "hami_core":
        return audit.Rules(CORE_ENTRY, "hami", ROOT / "CHANGELOG.md", IGNORED)
    log = ROOT / "hami-plugins" / name.replace("_", "-") / "CHANGELOG.md"
    return audit.Rules(ENTRY, name, log, IGNORED)


def checks(file: Path, cores: Cores) -> Iterator[Check]:
    """Every check of one wheel or source distribution."""
    complete = False
    for check in audit.checks(file, rules(file)):
        complete = check[1] if check[0] == "archive" else complete
        yield check
    if complete and file.suffix == ".whl":
        files = wheel_file.read(file)
        if file.name.startswith("hami_core-"):
            yield from of_core(file, files)
        yield imports(file, files, cores)


def of_core(wheel: Path, files: Mapping[str, bytes]) -> Iterator[Check]:
    """The sizes are those promised, and the binary has the version of the wheel."""
    found = {"size": wheel.stat().st_size, "size when installed": sum(map(len, files.values()))}
    for what, limit in CORE_SIZES.items():
        yield what, found[what] <= limit, f"{found[what]} bytes, limit {limit}"
    named = BINARY_VERSION.search(b"".join(data for name, data in files.items() if name.endswith(".so")))
    version = named.group(1).decode() if named else "none"
    yield "version of the binary", version == wheel.stem.split("-")[1], version


def imports(wheel: Path, files: Mapping[str, bytes], cores: Cores) -> Check:
    """Every suitable CPython of this machine imports the entry points that the core imports to find backends."""
    fitting = {core: found for core, found in cores.items() if wheel == core or "-py3-none-" in wheel.name}
    modules = [target for target in archive.searched_entry_points(files) if not target.endswith(".toml")]
    for core, interpreter in fitting.items():
        if error := import_error(interpreter, {wheel, core}, modules):
            return "imports", False, f"{interpreter.tag}: {error}"
    return "imports", True, ", ".join(found.tag for found in fitting.values()) or "not imported"


def import_error(interpreter: Interpreter, wheels: set[Path], targets: list[str]) -> str:
    """Return the error of loading the entry points from the unpacked wheels with that Python; "" if there is none.

    pluggy and tomli, which the core requires, are in the environment of this program; every Python can use them.
    """
    with tempfile.TemporaryDirectory() as folder:
        for wheel in wheels:
            with zipfile.ZipFile(wheel) as opened:
                opened.extractall(folder)
        command = [str(interpreter.executable), "-IS", "-c", LOAD, folder, sysconfig.get_path("purelib"), *targets]
        result = subprocess.run(command, env=environment(), capture_output=True, text=True, check=False)
    return result.stderr.strip().splitlines()[-1] if result.returncode else ""


def findings(files: Sequence[Path]) -> list[Finding]:
    """Return the findings about all `files`; plugins are imported with the wheels of the core among them."""
    ours = [file for file in files if file.name.startswith("hami_core-") and file.stem.endswith(zig.HOST)]
    found = interpreters.find()[0]
    cores = {file: each for each in found for file in ours if f"-{each.tag}-{each.tag}-" in file.name}
    with step(f"auditing {len(files)} files"):
        return [Finding(file.name, *each) for file in files for each in checks(file, cores)]


def require_good(files: Sequence[Path]) -> None:
    """Raise Failure with the checks of `files` that failed."""
    if wrong := [str(finding) for finding in findings(files) if not finding.passed]:
        raise Failure("\n".join(wrong))
