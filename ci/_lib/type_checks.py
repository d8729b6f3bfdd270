"""Checks types with mypy and pyright: core, plugins, written projects, and the Python blocks of documents.

Every file that is made of a document has the lines of that document, so that a finding names page and line.
"""

from __future__ import annotations

import importlib
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from hami_build.steps import environment

from . import dist, project_templates
from .checkout import known_files
from .in_place import PACKAGE, package_of
from .paths import CACHE, ROOT

WORK = CACHE / "types"
Pages = dict[Path, list[Path]]  # by document: its program, and the files that it shows
# Examples have no annotations where none are needed to understand them.
PAGE_OPTIONS = (
    *("--allow-untyped-defs", "--allow-incomplete-defs", "--allow-untyped-calls", "--allow-untyped-decorators"),
    *("--disable-error-code", "var-annotated", "--follow-imports", "silent"),
)


def run_all(python: Path) -> dict[str, bool]:
    """Run both checkers over everything and print their findings; whether each part passed."""
    shutil.rmtree(WORK, ignore_errors=True)
    pages = write_pages(WORK / "pages", documents())
    sources = [PACKAGE, *map(package_of, dist.folders()), *write_projects(WORK / "written")]
    names = {module: document for document, modules in pages.items() for module in modules}
    found = {"mypy --strict": mypy(python, sources), "pyright": pyright(python, [*sources, *names])}
    for number, group in enumerate(groups(pages)):
        found[f"mypy, documents, part {number + 1}"] = mypy(python, group, *PAGE_OPTIONS)
    for name, done in found.items():
        print(f"-- {name}\n{translated(done.stdout, names)}", end="", flush=True)
    return {name: done.returncode == 0 for name, done in found.items()}


def import_paths() -> list[Path]:
    return [PACKAGE.parent, *(package_of(folder).parent for folder in dist.folders())]


def mypy(python: Path, sources: Sequence[Path], *options: str) -> subprocess.CompletedProcess[str]:
    paths = [*import_paths(), *dict.fromkeys(source.parent for source in sources)]
    env = environment(MYPYPATH=":".join(map(str, dict.fromkeys(paths))), MYPY_CACHE_DIR=str(CACHE / "mypy-types"))
    strict = ("--strict", "--explicit-package-bases", "--hide-error-context")
    return checker([python, "-m", "mypy", *strict, *options, *sources], env)


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
    return checker([python.with_name("pyright"), "--pythonpath", python, "--project", file], environment())


def checker(command: Sequence[object], env: dict[str, str]) -> subprocess.CompletedProcess[str]:
    output = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    return subprocess.run(list(map(str, command)), cwd=ROOT, env=env, text=True, check=False, **output)  # type: ignore[call-overload,no-any-return]


def translated(output: str, names: dict[Path, Path]) -> str:
    """The findings with each written file replaced by its document, and paths relative to the checkout."""
    for module, document in names.items():
        output = output.replace(f"{module}:", f"{document}:")
        output = output.replace(f"{str(module).replace(f'{ROOT}/', '')}:", f"{document}:")
    return output.replace(f"{ROOT}/", "")


def documents() -> list[Path]:
    """Every document for users: guides and reference of the core, and the README of each package."""
    names = known_files(ROOT, [ROOT / "README.md", ROOT / "hami-core" / "docs", ROOT / "hami-plugins"])
    return [ROOT / name for name in names if name.endswith(".md") and "CHANGELOG" not in name]


def write_pages(folder: Path, pages: Sequence[Path]) -> Pages:
    """Write the Python blocks of each document into a folder of its own; documents without any are left out."""
    sys.path.append(str(ROOT / "tests" / "python"))
    blocks_of = importlib.import_module("doc_blocks").blocks_of  # the tests run the same blocks

    made = {}
    for document in pages:
        own = folder / re.sub(r"\W", "_", str(document.relative_to(ROOT).with_suffix("")))
        texts: dict[str, list[str]] = {}
        for block in blocks_of(document, unnamed=True):
            if block.language == "python":
                name = block.directives.get("file", f"page_{own.name}.py")
                lines = [] if "file" in block.directives else texts.get(name, [])  # of a file the last block counts
                texts[name] = [*lines, *[""] * (block.line - len(lines)), *block.text.splitlines()]
        for name, lines in texts.items():
            (own / name).parent.mkdir(parents=True, exist_ok=True)
            (own / name).write_text("\n".join([*lines, ""]), "utf-8")
        if texts:
            made[document] = [own / name for name in texts]
    return made


def groups(pages: Pages) -> list[list[Path]]:
    """The modules of all documents in as few lists as possible, none with two modules of one name: mypy allows none."""
    lists: list[list[Path]] = []
    for modules in pages.values():
        names = {module.stem for module in modules}
        place = next((each for each in lists if not names & {module.stem for module in each}), None)
        if place is None:
            lists.append(place := [])
        place += modules
    return lists


def write_projects(folder: Path) -> list[Path]:
    """Write each kind of project of `hami new-plugin`; returns their packages, each with a name of its own."""
    made = []
    for kind in project_templates.kinds():
        project = folder / f"new-{kind}"  # a folder named "torch" would be the package torch for pyright
        project_templates.write(kind, project)
        (package,) = (project / "python").iterdir()
        made.append(package.rename(package.with_name(f"{package.name}_{kind}")))
    return made
