"""The commands of `hami-build`, which are those of `hami build` too."""

from __future__ import annotations

import argparse
import contextlib
import datetime
import errno
import json
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from hami_build.errors import Failure, shown

Command = Callable[[argparse.Namespace], int]
NOT_WRITABLE = {errno.EROFS, errno.EACCES, errno.EPERM, errno.ENOSPC, errno.EDQUOT}
NO_TEMPORARY = "No usable temporary directory"  # of tempfile, with the errno of an absent file
PLATFORMS: dict[str, Any] = {
    "type": lambda text: text.split(","),
    "action": "extend",
    "metavar": "NAME,…",
    "help": "platforms of a native plugin, such as manylinux2014_x86_64,manylinux_2_28_aarch64; "
    "default: the oldest with the architecture of this machine",
}
PYTHONS: dict[str, Any] = {
    "action": "append",
    "default": [],
    "metavar": "WHICH",
    "help": "of a project that is compiled for the ABI of one Python, such as pybind11 makes: build for this CPython, "
    "such as 3.12, cp313t or a path; all: for all that are found; default: the running one",
}
OTHER_CORES: dict[str, Any] = {
    "action": "append",
    "default": [],
    "metavar": "WHEEL",
    "help": "also run the backends with another hami-core: a wheel, or the oldest and the newest suitable version of a "
    "folder or a package index",
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return the exit status: 0 for success, 1 for an error, 2 for wrong usage."""
    parser = argparse.ArgumentParser(
        prog="hami-build", description="Build, check and publish plugins of HAMi.", allow_abbrev=False
    )
    add_commands(parser)
    parsed = parser.parse_args(arguments)
    return int(parsed.run(parsed))


def add_commands(parser: argparse.ArgumentParser) -> None:
    """Add the commands to a parser."""
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    check = _add(commands, "check", "grade wheels: bronze, silver or gold, with the reason for every check", run_check)
    check.add_argument("wheel", nargs="+", type=Path, metavar="WHEEL", help="the wheel of a plugin")
    check.add_argument("--require", choices=("bronze", "silver", "gold"), default="bronze", help="default: bronze")
    check.add_argument("--badge", type=Path, metavar="FILE", help="write a badge as SVG, with the lowest of the grades")
    check.add_argument("--core", **OTHER_CORES)
    check.add_argument(
        "--source", type=Path, metavar="FOLDER", help="also compile the project in FOLDER with sanitizers and run it"
    )
    wheel = _add(commands, "wheel", "build the wheels of a project, as they are published", run_wheel)
    wheel.add_argument(
        "project", nargs="?", type=Path, default=Path(), metavar="PROJECT", help="folder of the project; default: ."
    )
    wheel.add_argument("--platform", **PLATFORMS)
    wheel.add_argument("--python", **PYTHONS)
    wheel.add_argument("--sdist", action="store_true", help="also build the source distribution")
    wheel.add_argument("--to", type=Path, default=Path("dist"), metavar="FOLDER", help="where to write; default: dist")
    audit = _add(commands, "audit", "audit the files of any project before they are published", run_audit)
    audit.add_argument("file", nargs="+", type=Path, metavar="FILE", help="a wheel or a source distribution")
    audit.add_argument("--changelog", type=Path, metavar="FILE", help="its newest version must be that of the files")
    sources = _add(commands, "sources", "fetch the sources of others that a project is compiled with", run_sources)
    sources.add_argument(
        "project", nargs="?", type=Path, default=Path(), metavar="PROJECT", help="folder of the project; default: ."
    )
    develop = _add(
        commands, "develop", "install a plugin from its sources, and compile it again when they change", run_develop
    )
    develop.add_argument(
        "project", nargs="?", type=Path, default=Path(), metavar="PROJECT", help="folder of the project; default: ."
    )
    develop.add_argument("--watch", action="store_true", help="compile again whenever a source is saved, until Ctrl-C")
    release = _add(
        commands, "release", "set the version, build and check the wheels, and say what to upload", run_release
    )
    release.add_argument("version", metavar="VERSION", help="the new version, such as 1.1.0")
    release.add_argument(
        "project", nargs="?", type=Path, default=Path(), metavar="PROJECT", help="folder of the project; default: ."
    )
    release.add_argument("--platform", **PLATFORMS)
    release.add_argument(
        "--to", type=Path, default=Path("dist"), metavar="FOLDER", help="where to write; default: dist"
    )
    release.add_argument("--require", choices=("bronze", "silver", "gold"), default="bronze", help="default: bronze")
    release.add_argument("--check", action="store_true", help="change nothing; fail if the files are not that release")
    matrix = _add(commands, "matrix", "run plugins with several versions of hami-core, and print a table", run_matrix)
    matrix.add_argument("wheel", nargs="+", type=Path, metavar="WHEEL", help="a wheel of a plugin")
    matrix.add_argument("--core", **OTHER_CORES)
    catalog = _add(commands, "catalog", "write a catalogue of plugins as JSON, and a page for readers", run_catalog)
    catalog.add_argument("folder", type=Path, metavar="FOLDER", help="folder with wheels, also of several versions")
    catalog.add_argument("--to", type=Path, required=True, metavar="FOLDER", help="where to write the two files")
    catalog.add_argument("--grade", action="store_true", help="also check the newest wheels and write their grades")
    index = _add(commands, "index", "write wheels as a package index of static files", run_index)
    index.add_argument("folder", type=Path, metavar="FOLDER", help="folder with wheels")
    index.add_argument("--to", type=Path, required=True, metavar="FOLDER", help="where to write the index")


def _add(commands: Any, name: str, text: str, run: Command) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = commands.add_parser(
        name, help=text, description=f"{text[0].upper()}{text[1:]}.", allow_abbrev=False
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(run=lambda parsed: _reported(run, parsed))
    return parser


def _reported(run: Command, parsed: argparse.Namespace) -> int:
    try:
        return run(parsed)
    except (Failure, OSError) as error:
        text = str(error)
        if isinstance(error, OSError):
            if error.errno not in NOT_WRITABLE and NO_TEMPORARY not in text:
                raise
            text += "; let this user write there, or set TMPDIR and HAMI_CACHE to folders where it may"
        if parsed.json:
            print(json.dumps({"error": text, "type": type(error).__name__}))
        print(shown(f"error: {text}"), file=sys.stderr)
        return 1


def run_check(parsed: argparse.Namespace) -> int:
    """Print a report for each wheel; the status is 1 if one does not reach the grade of --require."""
    from hami_build import grades

    reports = [grades.grade(wheel, parsed.core, parsed.source) for wheel in parsed.wheel]
    lowest = min((report.grade for report in reports), key=grades.GRADES.index)
    if parsed.json:
        print(json.dumps([report.as_json() for report in reports], indent=1))
    else:
        print(shown("\n\n".join(report.text() for report in reports)))
    if parsed.badge:
        parsed.badge.write_text(grades.badge(lowest), "utf-8")
    return 0 if grades.GRADES.index(lowest) >= grades.GRADES.index(parsed.require) else 1


def run_wheel(parsed: argparse.Namespace) -> int:
    """Build the wheels and print their paths."""
    from hami_build import interpreters, platforms, sdist, wheels

    pythons = interpreters.required([] if "all" in parsed.python else parsed.python) if parsed.python else []
    built = wheels.build(parsed.project, platforms.chosen(parsed.platform), parsed.to, pythons)
    if parsed.sdist:
        built.append(sdist.build(parsed.project, parsed.to))
    return _print_files(parsed, "wheels", built)


def run_sources(parsed: argparse.Namespace) -> int:
    """Print the folder with the sources that [tool.hami-build.sources] names, which CMake asks for."""
    from hami_build import project, sources

    folder = sources.folder_of(project.read(parsed.project))
    if folder is None:
        raise Failure(f"{parsed.project / 'pyproject.toml'} has no [tool.hami-build.sources.NAME]; write one")
    print(json.dumps({"folder": str(folder.resolve())}) if parsed.json else folder.resolve())
    return 0


def run_audit(parsed: argparse.Namespace) -> int:
    """Print a line for each check; the status is 1 if one fails."""
    from hami_build import audit

    rules = audit.Rules(changelog=parsed.changelog)
    if missing := [file for file in parsed.file if not file.is_file()]:
        raise Failure(f"{missing[0]} is not a file; give the path of a wheel or a source distribution")
    found = [audit.Finding(file.name, *each) for file in parsed.file for each in audit.checks(file, rules)]
    if parsed.json:
        print(json.dumps([asdict(each) for each in found], indent=1))
    else:
        print(shown("\n".join(map(str, found))))
    return 0 if all(each.passed for each in found) else 1


def run_release(parsed: argparse.Namespace) -> int:
    """Change the files of a project to a release, unless its wheels cannot be built or do not reach the grade."""
    from hami_build import grades, platforms, project, release, wheels

    if parsed.check:
        if problems := release.problems(parsed.project, parsed.version):
            raise Failure("\n".join(problems))
        if parsed.json:
            print(json.dumps({"name": project.read(parsed.project).name, "version": parsed.version}))
        return 0
    release.require_ready(parsed.project, parsed.version)
    day = datetime.datetime.now(datetime.timezone.utc).date().isoformat()
    with release.bumped(parsed.project, parsed.version, day):
        files = wheels.build(parsed.project, platforms.chosen(parsed.platform), parsed.to)
        for report in map(grades.grade, files):
            if grades.GRADES.index(report.grade) < grades.GRADES.index(parsed.require):
                raise Failure(f"a release must be {parsed.require}\n{report.text()}")
    ready = release.Ready(project.read(parsed.project).name, parsed.version, f"v{parsed.version}", files)
    print(json.dumps(ready.as_json()) if parsed.json else ready.text())
    return 0


def run_develop(parsed: argparse.Namespace) -> int:
    """Install the project, and with --watch compile it whenever a source changes."""
    from hami_build import develop

    def say(text: str) -> None:
        print(json.dumps({"message": text}) if parsed.json else text, flush=True)

    before = develop.dates(parsed.project)
    say(develop.install(parsed.project))
    if parsed.watch:
        with contextlib.suppress(KeyboardInterrupt):
            for text in develop.watch(parsed.project, before):
                say(text)
    return 0


def run_matrix(parsed: argparse.Namespace) -> int:
    """Print the table; the status is 1 if a plugin does not run with a core that it accepts."""
    from hami_build import matrix

    rows = matrix.measure(parsed.wheel, parsed.core)
    if not rows:
        raise Failure("none of the wheels is for this machine")
    print(json.dumps([each.as_json() for each in rows], indent=1) if parsed.json else matrix.markdown(rows).rstrip())
    failed = matrix.failures(rows)
    for text in failed:
        print(f"error: {text}", file=sys.stderr)
    return 1 if failed else 0


def run_catalog(parsed: argparse.Namespace) -> int:
    """Write the catalogue and print its files."""
    from hami_build import catalog

    wheels = sorted(parsed.folder.glob("*.whl"))
    if not wheels:
        raise Failure(f"{parsed.folder} contains no wheels; build them with hami-build wheel")
    found = catalog.collect(wheels, with_grades=parsed.grade)
    return _print_files(parsed, "files", catalog.write(found, parsed.to, wheels))


def run_index(parsed: argparse.Namespace) -> int:
    """Write the index and print how to install from it."""
    from hami_build import index

    found = index.archives_in(parsed.folder)
    if not found:
        raise Failure(f"{parsed.folder} contains no wheels; build them with hami-build wheel")
    folder = parsed.to.resolve()
    url = (folder / index.SIMPLE).as_uri()
    if parsed.json:
        archives = [{"file": each.path.name, "sha256": each.sha256} for each in index.write(found, folder)]
        print(json.dumps({"index": url, "archives": archives}))
        return 0
    for archive in index.write(found, folder):
        print(f"{archive.sha256}  {archive.path.name}")
    print(f"\npip install --extra-index-url {url} NAME")
    return 0


def _print_files(parsed: argparse.Namespace, what: str, files: Iterable[Path]) -> int:
    if parsed.json:
        print(json.dumps({what: [str(file) for file in files]}))
        return 0
    for file in files:
        print(file)
    return 0
