"""Checks a wheel as an archive: name, metadata, bill of materials, entry points."""

from __future__ import annotations

import ast
import configparser
import re
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

from . import backend, changelog, sbom, wheel_file
from .interpreters import Interpreter
from .paths import LOGS
from .steps import Failure, environment, run

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
    yield file_name(wheel, files)
    yield top_level_names(files, "hami" if name == "hami-core" else name.replace("-", "_"))
    if name == "hami-core":
        yield from sizes(wheel, files)
    yield licences(files)
    yield bill_of_materials(files)
    yield entry_points(wheel, files, cores)
    yield versions(wheel, files, changelog.path_of(name))
    yield contents(wheel)


def file_name(wheel: Path, files: Mapping[str, bytes]) -> Check:
    """The file name agrees with the tags inside; it does not if the wheel was renamed."""
    python, abi, platforms = wheel.stem.split("-")[-3:]
    named = {f"{python}-{abi}-{platform}" for platform in platforms.split(".")}
    lines = files[f"{wheel_file.info_folder(files)}/WHEEL"].decode().splitlines()
    inside = {line.removeprefix("Tag: ") for line in lines if line.startswith("Tag: ")}
    return "file name", named == inside, "-".join([python, abi, platforms]) if named == inside else " ".join(inside)


def top_level_names(files: Mapping[str, bytes], own: str) -> Check:
    """The wheel has one top-level folder: removing one of two wheels that share a folder damages the other."""
    names = sorted({name.partition("/")[0] for name in files} - {wheel_file.info_folder(files)})
    return "top-level names", names == [own], ", ".join(names)


def sizes(wheel: Path, files: Mapping[str, bytes]) -> Iterator[Check]:
    found = {"size": wheel.stat().st_size, "size when installed": sum(map(len, files.values()))}
    for what, limit in CORE_SIZES.items():
        yield what, found[what] <= limit, f"{found[what]} bytes, limit {limit}"


def licences(files: Mapping[str, bytes]) -> Check:
    metadata, info = wheel_file.metadata(files), wheel_file.info_folder(files)
    named = metadata.get_all("License-File") or []
    missing = [name for name in named if f"{info}/licenses/{name}" not in files]
    if missing or not named or not metadata["License-Expression"]:
        return "licence", False, f"missing: {', '.join(missing) or 'License-File or License-Expression in METADATA'}"
    return "licence", True, f"{metadata['License-Expression']}, {', '.join(named)}"


def bill_of_materials(files: Mapping[str, bytes]) -> Check:
    title = "bill of materials"
    folder = f"{wheel_file.info_folder(files)}/sboms/"
    found = [name for name in files if name.startswith(folder)]
    if len(found) != 1:
        return title, False, f"{len(found)} files in {folder}, expected 1"
    text = files[found[0]].decode()
    error = JsonStrictValidator(SchemaVersion.V1_6).validate_str(text)
    if error is not None:
        return title, False, f"not valid CycloneDX: {str(error.data).splitlines()[0]}"
    metadata = wheel_file.metadata(files)
    about, parts = sbom.summary(text)
    same = about == f"{metadata['Name']} {metadata['Version']}"
    return title, same, f"{about}; contains {', '.join(parts) or 'no third-party code'}"


def declared_entry_points(files: Mapping[str, bytes]) -> list[str]:
    """Return each target, as `module` or `module:attribute`."""
    return sorted({target for targets in entry_point_groups(files).values() for target in targets})


def searched_entry_points(files: Mapping[str, bytes]) -> list[str]:
    """Return the targets that the core imports to find backends, so without what the package needs to run them.

    The groups of other packages are theirs: these import a target when it is used.
    """
    groups = entry_point_groups(files).items()
    ours = [targets for group, targets in groups if group == "console_scripts" or group.split(".")[0] == "hami"]
    return sorted({target for targets in ours for target in targets})


def entry_point_groups(files: Mapping[str, bytes]) -> dict[str, list[str]]:
    parser = configparser.ConfigParser(delimiters="=")
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read_string(files.get(f"{wheel_file.info_folder(files)}/entry_points.txt", b"").decode())
    return {group: list(parser[group].values()) for group in parser.sections()}


def entry_points(wheel: Path, files: Mapping[str, bytes], cores: Cores) -> Check:
    """Each entry point names something in the wheel, and every suitable CPython of this machine can import it.

    Only a wheel without a module named plugin, which other plugins use, may have none.
    """
    declared = declared_entry_points(files)
    wrong = [target for target in declared if not defines(files, *target.partition(":")[::2])]
    if wrong:
        return "entry points", False, f"not in the wheel: {', '.join(wrong)}"
    if not declared:
        return "entry points", not any(name.endswith("/plugin.py") for name in files), "none"
    fitting = {core: found for core, found in cores.items() if wheel == core or "-py3-none-" in wheel.name}
    modules = [target for target in searched_entry_points(files) if not target.endswith(".toml")]
    for core, interpreter in fitting.items():
        if error := import_error(interpreter, {wheel, core}, modules):
            return "entry points", False, f"{interpreter.tag}: {error}"
    by = f"imported by {', '.join(found.tag for found in fitting.values())}" if fitting else "present, not imported"
    return "entry points", True, f"{', '.join(declared)} ({by})"


def defines(files: Mapping[str, bytes], module: str, attribute: str) -> bool:
    """Return whether `module` exists and has `attribute`: a name or, for a packaged pipeline, a file beside it."""
    path = module.replace(".", "/")
    if f"{path}/{attribute}" in files:
        return True
    source = files.get(f"{path}.py", files.get(f"{path}/__init__.py"))
    if source is None:
        return False
    names = set()
    for statement in ast.parse(source).body:
        if isinstance(statement, (ast.FunctionDef, ast.ClassDef)):
            names.add(statement.name)
        elif isinstance(statement, (ast.Import, ast.ImportFrom)):
            names |= {alias.asname or alias.name for alias in statement.names}
        elif isinstance(statement, ast.Assign):
            names |= {target.id for target in statement.targets if isinstance(target, ast.Name)}
    return not attribute or attribute in names


def import_error(interpreter: Interpreter, wheels: set[Path], targets: list[str]) -> str:
    """Return the error of loading the entry points from the unpacked wheels with that Python; "" if there is none.

    pluggy and tomli, which the core requires, are installed with the build backends, where every Python can use them.
    """
    with tempfile.TemporaryDirectory() as folder:
        for wheel in wheels:
            with zipfile.ZipFile(wheel) as archive:
                archive.extractall(folder)
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
    program = Path(sys.executable).with_name("check-wheel-contents")
    try:
        run([program, "--no-config", "--ignore", "W002", wheel], log=f"contents-{wheel.stem}")
    except Failure:
        found = re.findall(r"\.whl: (W\d+: .+)$", (LOGS / f"contents-{wheel.stem}.log").read_text(), re.MULTILINE)
        return "check-wheel-contents", False, "; ".join(found)
    return "check-wheel-contents", True, "passed"
