"""Checks a wheel as an archive: name, metadata, bill of materials, entry points."""

from __future__ import annotations

import re
import subprocess
import tempfile
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from hami_build import archive, changelog, tools, wheel_file
from hami_build.steps import environment

from . import backend
from .interpreters import Interpreter
from .paths import ROOT

Check = tuple[str, bool, str]
Cores = Mapping[Path, Interpreter]  # wheels of the core, each with a CPython of this machine that can import it
CORE_SIZES = {"size": 1_500_000, "size when installed": 4_000_000}
# The core names itself in messages about the contract with native plugins.
BINARY_VERSION = re.compile(rb"hami-core (\d[0-9A-Za-z.]*) serves ")
LOAD = """
import functools, importlib, sys
sys.path[:0] = sys.argv[1:3]
for target in sys.argv[3:]:
    module, _, attribute = target.partition(":")
    functools.reduce(getattr, filter(None, attribute.split(".")), importlib.import_module(module))
"""


def checks(wheel: Path, cores: Cores) -> Iterator[Check]:
    """Every finding."""
    files = wheel_file.read(wheel)
    name = wheel_file.metadata(files)["Name"]
    yield archive.file_name(wheel, files)
    yield archive.top_level_names(files, "hami" if name == "hami-core" else name.replace("-", "_"))
    if name == "hami-core":
        yield from sizes(wheel, files)
    yield archive.licences(files)
    yield archive.bill_of_materials(files)
    yield entry_points(wheel, files, cores)
    yield versions(wheel, files, log_of(name))
    yield contents(wheel)


def log_of(distribution: str) -> Path:
    """Return the changelog of one of our distributions; that of the core is in the root folder."""
    return (ROOT if distribution == "hami-core" else ROOT / "hami-plugins" / distribution) / "CHANGELOG.md"


def sizes(wheel: Path, files: Mapping[str, bytes]) -> Iterator[Check]:
    found = {"size": wheel.stat().st_size, "size when installed": sum(map(len, files.values()))}
    for what, limit in CORE_SIZES.items():
        yield what, found[what] <= limit, f"{found[what]} bytes, limit {limit}"


def entry_points(wheel: Path, files: Mapping[str, bytes], cores: Cores) -> Check:
    """Each entry point names something in the wheel, and every suitable CPython of this machine can import it.

    Only a wheel without a module named plugin, which other plugins use, may have none.
    """
    declared = archive.declared_entry_points(files)
    wrong = [target for target in declared if not archive.defines(files, *target.partition(":")[::2])]
    if wrong:
        return "entry points", False, f"not in the wheel: {', '.join(wrong)}"
    if not declared:
        return "entry points", not any(name.endswith("/plugin.py") for name in files), "none"
    fitting = {core: found for core, found in cores.items() if wheel == core or "-py3-none-" in wheel.name}
    modules = [target for target in archive.searched_entry_points(files) if not target.endswith(".toml")]
    for core, interpreter in fitting.items():
        if error := import_error(interpreter, {wheel, core}, modules):
            return "entry points", False, f"{interpreter.tag}: {error}"
    by = f"imported by {', '.join(found.tag for found in fitting.values())}" if fitting else "present, not imported"
    return "entry points", True, f"{', '.join(declared)} ({by})"


def import_error(interpreter: Interpreter, wheels: set[Path], targets: list[str]) -> str:
    """Return the error of loading the entry points from the unpacked wheels with that Python; "" if there is none.

    pluggy and tomli, which the core requires, are installed with the build backends, where every Python can use them.
    """
    with tempfile.TemporaryDirectory() as folder:
        for wheel in wheels:
            with zipfile.ZipFile(wheel) as opened:
                opened.extractall(folder)
        command = [str(interpreter.executable), "-IS", "-c", LOAD, folder, str(backend.folder()), *targets]
        result = subprocess.run(command, env=environment(), capture_output=True, text=True, check=False)
    return result.stderr.strip().splitlines()[-1] if result.returncode else ""


def versions(wheel: Path, files: Mapping[str, bytes], log: Path) -> Check:
    """File name, metadata, changelog and binary agree on the version."""
    entry = changelog.newest(log)
    said = {
        "file name": wheel.stem.split("-")[1],
        "metadata": wheel_file.metadata(files)["Version"],
        "changelog": entry.version if entry else "none",
    }
    if wheel.name.startswith("hami_core-"):
        binaries = b"".join(data for name, data in files.items() if name.endswith(".so"))
        found = BINARY_VERSION.search(binaries)
        said["binary"] = found.group(1).decode() if found else "none"
    return "version", len(set(said.values())) == 1, ", ".join(f"{place} {version}" for place, version in said.items())


def contents(wheel: Path) -> Check:
    """check-wheel-contents passes, without W002: the templates of `hami new-plugin` contain equal files."""
    return "check-wheel-contents", *tools.contents(wheel, "W002")
