"""Checks types with mypy and pyright: core, plugins, written projects, and the Python blocks of documents.

Every file that is made of a document has the lines of that document, so that a finding names page and line.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from hami_build.steps import environment

from . import plugin_wheels, project_templates
from .checkout import known_files
from .paths import CACHE, ROOT

WORK = CACHE / "types"
CORE = ROOT / "hami-core" / "python" / "hami"
DIRECTIVE = re.compile(r"<!-- (\w+): (.*) -->")
# Examples have no annotations where none are needed to understand them.
PAGE_OPTIONS = (
    *("--allow-untyped-defs", "--allow-incomplete-defs", "--allow-untyped-calls", "--allow-untyped-decorators"),
    *("--disable-error-code", "var-annotated", "--follow-imports", "silent"),
)


@dataclass(frozen=True)
class Page:
    """The modules that one document is made of: its program, and the files that it shows."""

    document: Path
    modules: tuple[Path, ...]


def run_all(python: Path) -> dict[str, bool]:
    """Run both checkers over everything and print their findings; whether each part passed."""
    shutil.rmtree(WORK, ignore_errors=True)
    pages = write_pages(WORK / "pages", documents())
    sources = [CORE, *map(package, plugin_wheels.folders()), *write_projects(WORK / "written")]
    names = {module: page.document for page in pages for module in page.modules}
    found = {
        "mypy --strict": mypy(python, sources),
        "pyright": pyright(python, [*sources, *names]),
    }
    for number, group in enumerate(groups(pages)):
        found[f"mypy, documents, part {number + 1}"] = mypy(python, group, *PAGE_OPTIONS)
    for name, done in found.items():
        print(f"-- {name}\n{translated(done.stdout, names)}", end="", flush=True)
    return {name: done.returncode == 0 for name, done in found.items()}


def package(plugin: Path) -> Path:
    return plugin / "python" / plugin.name.replace("-", "_")


def import_paths() -> list[Path]:
    return [CORE.parent, *(package(folder).parent for folder in plugin_wheels.folders())]


def mypy(python: Path, sources: Sequence[Path], *options: str) -> subprocess.CompletedProcess[str]:
    paths = [*import_paths(), *dict.fromkeys(source.parent for source in sources)]
    env = environment(MYPYPATH=":".join(map(str, dict.fromkeys(paths))), MYPY_CACHE_DIR=str(CACHE / "mypy-types"))
    strict = ("--strict", "--explicit-package-bases", "--hide-error-context")
    return checker([python, "-m", "mypy", "--config-file", ROOT / "pyproject.toml", *strict, *options, *sources], env)


def pyright(python: Path, sources: Sequence[Path]) -> subprocess.CompletedProcess[str]:
    settings = {
        "include": [os.path.relpath(source, WORK) for source in sources],
        "exclude": [os.path.relpath(project_templates.TEMPLATES, WORK)],
        "extraPaths": list(map(str, import_paths())),
        "typeCheckingMode": "standard",
        "reportMissingImports": "none",  # of packages that only some users have; mypy's settings name them
        "reportMissingModuleSource": "none",
    }
    file = WORK / "pyrightconfig.json"
    file.write_text(json.dumps(settings, indent=1), "utf-8")
    program = python.with_name("pyright")
    return checker([program, "--pythonpath", python, "--project", file], environment())


def checker(command: Sequence[object], env: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        list(map(str, command)),
        cwd=ROOT,
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )


def translated(output: str, names: dict[Path, Path]) -> str:
    """The findings with each written file replaced by its document, and paths relative to the checkout."""
    output = output.replace(f"{ROOT}/", "")
    for module, document in names.items():
        spelled = str(module).replace(f"{ROOT}/", "")
        output = output.replace(f"{spelled}:", f"{str(document).replace(f'{ROOT}/', '')}:")
    return output


# ---- documents ----


def documents() -> list[Path]:
    """Every document for users: guides and reference of the core, and the README of each package."""
    names = known_files(ROOT, [ROOT / "README.md", ROOT / "hami-core" / "docs", ROOT / "hami-plugins"])
    return [ROOT / name for name in names if name.endswith(".md") and "CHANGELOG" not in name]


def write_pages(folder: Path, pages: Sequence[Path]) -> list[Page]:
    """Write the Python blocks of each document into a folder of its own; documents without any are left out."""
    made = []
    for document in pages:
        own = folder / re.sub(r"\W", "_", str(document.relative_to(ROOT).with_suffix("")))
        texts: dict[str, list[str]] = {}
        for line, name, block in python_blocks(document.read_text("utf-8")):
            lines = texts.setdefault(name or f"page_{own.name}.py", [])
            if name:
                lines.clear()  # of a file that is shown twice the last one counts
            lines += [*[""] * (line - 1 - len(lines)), *block]
        for name, lines in texts.items():
            (own / name).parent.mkdir(parents=True, exist_ok=True)
            (own / name).write_text("\n".join([*lines, ""]), "utf-8")
        if texts:
            made.append(Page(document, tuple(own / name for name in texts)))
    return made


def python_blocks(text: str) -> Iterator[tuple[int, str, list[str]]]:
    """The line of the first line of each Python block, the file that it is written to ("": the program), its lines."""
    directives: dict[str, str] = {}
    opened, language, lines = 0, "", list[str]()
    for number, line in enumerate(text.splitlines(), start=1):
        if not opened and (found := DIRECTIVE.fullmatch(line)):
            directives[found[1]] = found[2]
        elif not opened and line.startswith("```"):
            opened, language, lines = number, line[3:].strip(), []
        elif opened and line == "```":
            if language == "python":
                yield opened + 1, directives.get("file", ""), lines
            opened, directives = 0, {}
        elif opened:
            lines.append(line)
        elif line.strip():
            directives = {}


def groups(pages: Sequence[Page]) -> list[list[Path]]:
    """The modules of all documents in as few lists as possible, none with two modules of one name: mypy allows none."""
    lists: list[dict[str, Path]] = []
    for page in pages:
        own = {module.stem: module for module in page.modules}
        place = next((each for each in lists if not own.keys() & each.keys()), None)
        if place is None:
            lists.append(own)
        else:
            place.update(own)
    return [list(each.values()) for each in lists]


# ---- what `hami new-plugin` writes ----


def write_projects(folder: Path) -> list[Path]:
    """Write each kind of project; returns the Python packages, whose names differ: mypy allows no two of one name."""
    made = []
    for kind in project_templates.kinds():
        project = folder / f"new-{kind}"  # a folder named "torch" would be the package torch for pyright
        project_templates.write(kind, project)
        (package,) = (project / "python").iterdir()
        made.append(package.rename(package.with_name(f"{package.name}_{kind}")))
    return made
