"""The checks of a wheel with a plugin. Each says what it found, or what is wrong and how to repair it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from hami_build import archive, binary, cores, project, quality, sanitizers, tools, wheel_file
from hami_build.errors import Failure
from hami_build.unpacked import Run, Skipped, Wheel, Wrong
from hami_build.wheels import installed_cmake_dir

GROUPS = ("hami", "hami.backends", "hami.pipelines", "hami.devices", "hami.models")
DISCOVERY_LIMIT_S = 0.2  # processor time; `hami plugins` imports the entry modules of every plugin
LIGHT = {"hami", "pluggy", "packaging"}  # modules of the core and of its requirements
NAME = re.compile(r"[A-Za-z_]\w*")


def of(check: tuple[str, bool, str], remedy: str) -> str:
    """Return the text of a check of the module archive; raises Wrong with the remedy if it failed."""
    _, passed, text = check
    if not passed:
        raise Wrong(f"{text}; {remedy}")
    return text


# ---- bronze: an installer can use it, and it harms no other package ----


def file_name(wheel: Wheel) -> str:
    return of(archive.file_name(wheel.path, wheel.files), "do not rename wheels: build it again")


def interpreter(wheel: Wheel) -> str:
    python, abi = wheel.path.stem.split("-")[-3:-1]
    if (python, abi) != ("py3", "none"):
        raise Wrong(f'{python}-{abi}; a plugin serves every Python: set wheel.py-api = "py3" in [tool.scikit-build]')
    return "py3-none"


def top_level(wheel: Wheel) -> str:
    return of(archive.top_level_names(wheel.files, wheel.package), f"put every file into the folder {wheel.package}")


def names(wheel: Wheel) -> str:
    found = [wheel.name, *wheel.backends]
    if wheel.name != canonicalize_name(wheel.name):
        raise Wrong(f'"{wheel.name}" is not a canonical name; write {canonicalize_name(wheel.name)} in pyproject.toml')
    if wrong := [name for name in wheel.backends if not NAME.fullmatch(name)]:
        raise Wrong(f'"{wrong[0]}" is not the name of a backend; use letters, digits and _')
    counted = Counter(map(plain, wheel.backends))
    if twice := [name for name in wheel.backends if counted[plain(name)] > 1]:
        raise Wrong(f"{', '.join(twice)} differ only in case or _; rename all but one")
    for name in wheel.backends:
        if (owners := owners_of(name)) and wheel.name not in owners:
            raise Wrong(f"{name} is the name of a backend of {', '.join(sorted(owners))} but for case and _; rename it")
    return ", ".join(found)


def owners_of(backend: str) -> set[str]:
    """Return the plugins in the catalogue that have a backend of that name, but for case and _."""
    return {each["name"] for each in catalogue() if plain(backend) in map(plain, each["backends"])}


@cache
def catalogue() -> list[dict[str, Any]]:
    """Return what `hami search` lists; nothing if the catalogue cannot be read."""
    command = [sys.executable, "-m", "hami", "search", "--json"]
    said = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    return list(json.loads(said)) if said else []


def plain(name: str) -> str:
    return name.lower().replace("_", "")


def metadata(wheel: Wheel) -> str:
    return of(("", *tools.twine(wheel.path)), "correct the table [project] in pyproject.toml")


def contents(wheel: Wheel) -> str:
    return of(("", *tools.contents(wheel.path)), "leave these files out of the wheel")


def binaries(wheel: Wheel) -> str:
    if wheel.platforms == ["any"] and wheel.binaries:
        raise Wrong(f"{wheel.binaries[0].name} is in a wheel for any platform; build a wheel with a platform tag")
    if wheel.platforms != ["any"] and not wheel.binaries:
        raise Wrong(f"no shared object in a wheel for {wheel.platforms[0]}; build a wheel for any platform")
    for each in wheel.binaries:
        if each.problem:
            raise Wrong(f"{each.name} is damaged: {each.problem}; build the wheel again")
        if not all(tag.endswith(f"_{each.machine}") for tag in wheel.platforms):
            raise Wrong(
                f"{each.name} is for {each.machine}, the wheel for {wheel.platforms[0]}; build it for that platform"
            )
    return ", ".join(f"{each.name} ({each.machine})" for each in wheel.binaries) or "pure Python"


def native(wheel: Wheel) -> list[binary.Binary]:
    """Return the readable binaries; raises Skipped for a wheel without any."""
    found = [each for each in wheel.binaries if not each.problem]
    if not found:
        raise Skipped("no shared object that can be read" if wheel.binaries else "pure Python")
    return found


def vendor(wheel: Wheel) -> str:
    native(wheel)
    if grafted := [each.name for each in wheel.binaries if binary.is_vendor(each.name)]:
        raise Wrong(
            f"contains {', '.join(grafted)}; require the package of the engine, and load its library with dlopen"
        )
    return "no library of a driver or an engine"


def links(wheel: Wheel) -> str:
    for name, libraries in binary.foreign(native(wheel)).items():
        raise Wrong(f"{name} links {', '.join(libraries)}; load it with dlopen when a backend is created")
    for name, symbols in binary.undefined(native(wheel)).items():
        raise Wrong(
            f"{name} needs {', '.join(symbols[:5])}, which no library of its platform has in a known version; build it "
            "with -Wl,-z,defs, which names the place of each"
        )
    return "only the system"


def exports(wheel: Wheel) -> str:
    for each in native(wheel):
        if other := sorted(each.symbols.exported - {binary.ENTRY}):
            raise Wrong(f"{each.name} exports {', '.join(other[:5])}; build it with hami_add_plugin, which hides them")
    if not any(binary.ENTRY in each.symbols.exported for each in native(wheel)):
        raise Wrong(f"no binary exports {binary.ENTRY}; add HAMI_PLUGIN to one source file")
    return binary.ENTRY


def python_abi(wheel: Wheel) -> str:
    found = native(wheel)
    passed, text = binary.without_python([each.name for each in found], [each.symbols for each in found])
    return of(("", passed, text), "a native plugin must not use the C API of Python")


def platform_tags(wheel: Wheel) -> str:
    native(wheel)
    if wheel.platforms[0].startswith("musllinux_") and not wheel.runs_here:
        raise Skipped("auditwheel reads a wheel for musl only where musl is installed")
    tag = tools.auditwheel(wheel.path)
    fulfilled = re.fullmatch(r"(many|musl)linux_(\d+)_(\d+)_(\w+)", tag)
    if not fulfilled:
        raise Wrong(f"auditwheel finds {tag}; build it with hami-build wheel")
    for each in wheel.platforms:
        claimed = re.fullmatch(r"(many|musl)linux_(\d+)_(\d+)_(\w+)", legacy(each))
        if not claimed or claimed[1] != fulfilled[1] or claimed[4] != fulfilled[4]:
            raise Wrong(
                f"the tag {each} does not describe a wheel of the platform {tag}; build it with hami-build wheel"
            )
        if tuple(map(int, claimed.group(2, 3))) < tuple(map(int, fulfilled.group(2, 3))):
            raise Wrong(f"the symbols need {tag}, the tag promises {each}; build it with hami-build wheel")
    return f"needs {tag}"


def legacy(tag: str) -> str:
    """Return the modern name of an old platform tag."""
    for old, new in (("manylinux2014", "2_17"), ("manylinux2010", "2_12"), ("manylinux1_", "2_5_")):
        if tag.startswith(old):
            return tag.replace(old, f"manylinux_{new}")
    return tag


def targets(wheel: Wheel) -> str:
    groups = {group: entries for group, entries in wheel.entry_points.items() if group in GROUPS}
    if not groups:
        raise Wrong(
            f"no entry points of {', '.join(GROUPS)}; HAMi does not find this package: hami new-plugin shows them"
        )
    every = sorted({target for entries in groups.values() for target in entries.values()})
    if gone := [target for target in every if not archive.defines(wheel.files, *target.partition(":")[::2])]:
        raise Wrong(f"{', '.join(gone)} is not in the wheel; correct the entry points in pyproject.toml")
    return ", ".join(every)


def core(wheel: Wheel) -> str:
    found = core_requirement(wheel)
    operators = {each.operator for each in found.specifier}
    if operators != {">="}:
        raise Wrong(f"it requires {found}; write hami-core>=X without an upper bound: later versions run it")
    return str(found)


def core_requirement(wheel: Wheel) -> Requirement:
    """Return what the wheel requires of hami-core; raises Wrong if it requires nothing."""
    lines = wheel_file.metadata(wheel.files).get_all("Requires-Dist") or []
    found = [each for each in map(Requirement, lines) if canonicalize_name(each.name) == cores.NAME]
    if not found:
        raise Wrong("the wheel does not require hami-core; add hami-core>=X, the oldest version that you test with")
    return found[0]


# ---- silver: it does what it promises ----


def discovery(wheel: Wheel) -> str:
    modules = sorted({target.partition(":")[0] for target in archive.searched_entry_points(wheel.files)})
    found = wheel.run("discover", [module for module in modules if not module.endswith(".toml")])
    heavy = [name for name in found["modules"] if name not in LIGHT and name != wheel.package]
    own = [name for name in heavy if not name.startswith("_")]
    if own:
        raise Wrong(f"its entry points import {', '.join(own)}; import them in a backend, when it is created")
    if found["seconds"] > DISCOVERY_LIMIT_S:
        raise Wrong(f"its entry points took {found['seconds']:.2f} s of processor time; do less at import")
    return f"{found['seconds'] * 1000:.0f} ms of processor time"


def registration(wheel: Wheel) -> str:
    return ", ".join(registered(wheel, wheel.run)) or "no backends"


def registered(wheel: Wheel, run: Run) -> list[str]:
    """Return the backends that the plugin registers; raises Wrong if it promises others."""
    found = run("registered", wheel.name)
    if found["errors"]:
        raise Wrong(f"{found['errors'][0]}; correct the plugin's hook hami_register")
    if gone := sorted(set(wheel.backends) - set(found["backends"])):
        raise Wrong(f"the entry points promise {', '.join(gone)}, which the plugin does not register")
    if extra := sorted(set(found["backends"]) - set(wheel.backends)):
        raise Wrong(
            f"the plugin registers {', '.join(extra)}, which the entry points hami.backends do not name: add them"
        )
    return list(found["backends"])


def plugin_abi(wheel: Wheel) -> str:
    libraries = [str(wheel.folder / each.name) for each in native(wheel) if binary.ENTRY in each.symbols.exported]
    if not libraries:
        raise Wrong(f"no library exports {binary.ENTRY}; add HAMI_PLUGIN to one source file")
    built = wheel.run("abi", libraries)
    if not all(built.values()):
        raise Wrong("the library does not call `fill`; use HAMI_PLUGIN of hami/backend.hpp")
    major, minor, least = max(built.values())
    if least > minor:
        raise Wrong(
            f"it needs ABI {major}.{least}, and was built with {major}.{minor}; use the same headers everywhere"
        )
    return f"needs {major}.{least}, built with {major}.{minor}"


def conformance(wheel: Wheel) -> str:
    if not wheel.backends:
        raise Skipped("no backends")
    missing = sorted(set(wheel.backends) - set(wheel.quality.samples))
    if missing:
        raise Wrong(f"no sample for {', '.join(missing)}; add [samples.{missing[0]}] to {wheel.package}/{quality.NAME}")
    return ", ".join(conforming(wheel, wheel.run))


def conforming(wheel: Wheel, run: Run) -> list[str]:
    """Return the backends with a sample; raises Wrong if one fails the conformance suite."""
    found = run("conformance", {name: each for name, each in wheel.quality.samples.items() if name in wheel.backends})
    if failed := {name: text for name, text in found.items() if text}:
        raise Wrong("; ".join(f"{name}: {text}" for name, text in failed.items()))
    return list(found)


def core_versions(wheel: Wheel) -> str:
    """The plugin registers its backends, and these pass the conformance suite, with every other core that is given."""
    if not wheel.cores:
        raise Skipped("only the installed hami-core; --core names others")
    core(wheel)
    said = []
    with tempfile.TemporaryDirectory() as work:
        for each in cores.find(wheel.cores, core_requirement(wheel).specifier, Path(work)):
            run = partial(wheel.run, first=each.folder)
            try:
                registered(wheel, run)
                conforming(wheel, run)
            except Wrong as error:
                raise Wrong(f"with hami-core {each.version}: {error}") from None
            said.append(str(each.version))
    if not said:
        raise Wrong(f"none of the given cores is {core_requirement(wheel)}; correct the requirement, or give others")
    return f"runs with {', '.join(said)}"


def sanitized(wheel: Wheel) -> str:
    """The same, compiled from the sources under AddressSanitizer and UndefinedBehaviorSanitizer."""
    native(wheel)
    if wheel.source is None:
        raise Skipped("sources not given; --source names the folder of the project")
    sources = project.read(wheel.source)
    if canonicalize_name(sources.name) != canonicalize_name(wheel.name):
        raise Skipped(f"{wheel.source} has the sources of {sources.name}")
    tool = sanitizers.find()
    if tool is None:
        raise Failure(f"no compiler with the runtime of AddressSanitizer; install {sanitizers.PACKAGES}")
    variables = tool.variables()
    started = subprocess.run(
        [sys.executable, "-c", ""], env={**os.environ, **variables}, capture_output=True, check=False
    )
    if started.returncode:
        raise Skipped(f"Python does not start with {', '.join(each.name for each in tool.runtimes)} loaded first")
    site = sanitizers.build(sources, sources.cached / "sanitized", installed_cmake_dir(), tool)
    run = partial(wheel.run, first=site, variables=variables)
    registered(wheel, run)
    return f"{tool.compiler}: {', '.join(conforming(wheel, run)) or 'no samples'}"


# ---- gold: users can read about it, and know what is inside ----


def licence(wheel: Wheel) -> str:
    return of(archive.licences(wheel.files), "add the file LICENSE, and license and license-files to [project]")


def bill_of_materials(wheel: Wheel) -> str:
    try:
        found = archive.bill_of_materials(wheel.files)
    except ModuleNotFoundError:
        raise Wrong(f"cyclonedx-python-lib is not installed; {tools.HINT}") from None
    return of(found, "build the wheel with hami-build wheel, which writes it")


def changelog(wheel: Wheel) -> str:
    return project_url(wheel, "changelog", "changes", "releasenotes", "history")


def documentation(wheel: Wheel) -> str:
    text = str(wheel_file.metadata(wheel.files).get_payload())
    if missing := sorted(name for name in wheel.backends if name not in text):
        raise Wrong(f"the README does not describe {', '.join(missing)}")
    return project_url(wheel, "documentation", "docs")


def project_url(wheel: Wheel, *labels: str) -> str:
    lines = wheel_file.metadata(wheel.files).get_all("Project-URL") or []
    urls = {
        re.sub(r"[^a-z]", "", label.lower()): url.strip() for label, _, url in (line.partition(",") for line in lines)
    }
    found = next((urls[label] for label in labels if label in urls), "")
    if not found:
        raise Wrong(f'no address of it; add {labels[0].capitalize()} = "https://…" to [project.urls]')
    return found


Check = Callable[[Wheel], str]
CHECKS: Mapping[str, Sequence[tuple[str, Check]]] = {
    "bronze": (
        ("file name", file_name),
        ("interpreter", interpreter),
        ("top-level folder", top_level),
        ("names", names),
        ("metadata", metadata),
        ("contents", contents),
        ("binaries", binaries),
        ("vendor libraries", vendor),
        ("links", links),
        ("exports", exports),
        ("no Python ABI", python_abi),
        ("platform tags", platform_tags),
        ("entry points", targets),
        ("hami-core", core),
    ),
    "silver": (
        ("discovery", discovery),
        ("registration", registration),
        ("plugin ABI", plugin_abi),
        ("conformance", conformance),
        ("hami-core versions", core_versions),
        ("sanitizers", sanitized),
    ),
    "gold": (
        ("licence", licence),
        ("bill of materials", bill_of_materials),
        ("changelog", changelog),
        ("documentation", documentation),
    ),
}
