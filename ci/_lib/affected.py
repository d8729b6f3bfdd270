"""Which tests a change can affect: a table from paths to tests.

The table errs on the side of too few tests: `ci/check` answers within a minute, and `ci/test` runs everything.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath

# Fast tests of every part of the package, together about ten seconds: what a change in the core affects first.
SMOKE_FILES = tuple(
    f"tests/python/test_{name}.py"
    for name in (
        *("async", "backend", "cli", "config", "config_values", "errors", "event", "graphs", "package", "pipe"),
        *("plugin_messages", "plugins", "python_backends", "queue", "retry_isolation", "scatter", "scheduling"),
        *("submit", "tensors", "types"),
    )
)
# The first row whose pattern matches a path counts; `*` also matches slashes. On the right are paths of tests, {plugin}
# for the folder of the plugin, and:
#   C++         the C++ unit tests
#   smoke       SMOKE_FILES
#   itself      the file, which is a test
#   page        the code blocks of the document, or of documents that name the file
#   importers   the tests that import the module or have its name
#   mentions    the tests in the same folder that mention the file by name; of ci/ those of tests/ci
TABLE = {
    "hami-core/src/*": "C++ smoke",
    "hami-core/include/*": "C++ smoke tests/abi",
    "hami-core/embed/*": "C++",
    "hami-core/cmake/*": "tests/abi",
    "hami-core/CMakeLists.txt": "C++ smoke",
    "hami-core/python/hami/*.py*": "importers smoke",
    "hami-core/python/*": "smoke",
    "hami-core/mkdocs.yml": "tests/ci/test_site.py",
    "hami-core/docs/reference/*.md": "page tests/python/test_reference.py",
    "hami-core/docs/*.md": "page",
    "hami-core/docs/*": "page C++",
    "hami-plugins/hami-serve/tests/conformance/*": "",
    "hami-plugins/hami-tools/*/templates/*": "{plugin}/tests tests/ci/test_configurations.py",
    "hami-plugins/*/tests/test_*.py": "itself",
    "hami-plugins/*/tests/gpu/*": "",
    "hami-plugins/*/bench/*": "",
    "hami-plugins/*/README.md": "{plugin}/tests/test_readme.py",
    "hami-plugins/*/pyproject.toml": "{plugin}/tests tests/python/test_catalog.py tests/ci/test_configurations.py",
    "hami-plugins/*": "{plugin}/tests",
    "tests/python/test_*.py": "itself",
    "tests/python/*": "mentions",
    "tests/cpp/*": "C++",
    "tests/fuzz/*": "C++",
    "tests/abi/golden/*": "C++ tests/abi",
    "tests/abi/test_*.py": "itself",
    "tests/abi/*": "tests/abi",
    "tests/plugins/test_joined_is_alone.py": "itself",
    "tests/plugins/test_*.py": "",
    "tests/plugins/*": "tests/python/test_plugins.py tests/python/test_plugin_messages.py",
    "tests/ci/test_*.py": "itself",
    "tests/ci/*": "mentions",
    "tests/*": "",
    "findings/*": "",
    "ci/requirements/*": "tests/ci/test_configurations.py",
    "ci/*": "mentions",
    ".github/workflows/*": "tests/ci/test_configurations.py",
    ".github/*": "",
    ".ci/*": "",
    "docker/*": "tests/ci/test_configurations.py",
    "examples/*": "hami-plugins/hami-tools/tests/test_new_plugin.py",
    "README.md": "tests/python/test_readme.py",
    "CHANGELOG.md": "tests/ci/test_release.py",
    "pyproject.toml": "tests/python/test_package.py tests/ci/test_release.py tests/ci/test_configurations.py",
    "CMakeLists.txt": "C++ smoke",
    "CMakePresets.json": "C++",
    "[!/]*": "",  # other files in the root folder, see test_check.py
}
# Tests that need more than a development build, and the tier that runs them.
ELSEWHERE = {
    "hami-plugins/hami-serve/tests/conformance/*": "serving",
    "hami-plugins/hami-serve/python/hami_serve/ray.py": "serving",
    "ci/requirements/serving-*": "serving",
    "tests/plugins/test_*.py": "installed",
    "tests/wheels/*": "wheels systems containers",
}


@dataclass
class Selection:
    """What to run: the C++ unit tests, files or folders for pytest, the blocks of documents."""

    cpp: bool = False
    files: set[str] = field(default_factory=set)
    pages: set[str] = field(default_factory=set)
    tiers: set[str] = field(default_factory=set)  # of ci/test, for tests that need more than a development build


def row_of(path: str) -> str | None:
    """The pattern of the row that counts for `path`; a path in an unknown folder has none."""
    found = next(pattern for pattern in TABLE if fnmatchcase(path, pattern))
    return None if found == "[!/]*" and "/" in path else found


def affected(root: Path, paths: Iterable[str]) -> Selection:
    """The tests that changes of `paths` (relative to `root`) can affect; files that are gone are left out."""
    found = Selection()
    for path in paths:
        for word in TABLE[row_of(path) or "[!/]*"].split():
            if word == "C++":
                found.cpp = True
            elif word == "page":
                found.pages |= pages_of(root, path)
            else:
                found.files |= tests_of(root, path, word)
        found.tiers |= {tier for pattern, tier in ELSEWHERE.items() if fnmatchcase(path, pattern)}
    folders = {file for file in found.files if (root / file).is_dir()}
    found.files = {file for file in found.files if file in folders or str(PurePosixPath(file).parent) not in folders}
    return found


def tests_of(root: Path, path: str, word: str) -> set[str]:
    """The files or folders that a word of the table names for `path`, as far as they are there."""
    parts = PurePosixPath(path).with_suffix("").parts
    folder, stem = "tests/ci" if parts[0] == "ci" else str(PurePosixPath(path).parent), parts[-1]
    if word == "smoke":
        names = set(SMOKE_FILES)
    elif word == "itself":
        names = {path}
    elif word == "importers":
        module = parts[2:-1] if stem == "__init__" else parts[2:]
        words = "_".join(part.strip("_") for part in module[1:]).split("_")
        called = {f"test_{'_'.join(words[start:])}.py" for start in range(len(words))}
        package, name = re.escape(".".join(module[:-1])), re.escape(module[-1])
        names = tests_with(root, "tests/python", rf"\b{package}\.{name}\b|from {package} import .*\b{name}\b", called)
    elif word == "mentions":
        names = {folder} if stem == "conftest" else tests_with(root, folder, rf"\b{re.escape(stem)}\b", set())
        names = names or {folder}
    else:
        names = {word.format(plugin="/".join(parts[:2]))}
    return {name for name in names if (root / name).exists()}


def tests_with(root: Path, folder: str, pattern: str, names: set[str]) -> set[str]:
    """The tests in a folder with one of these names, or in which the pattern is."""
    tests = (root / folder).glob("test_*.py")
    return {
        f"{folder}/{file.name}" for file in tests if file.name in names or re.search(pattern, file.read_text("utf-8"))
    }


def pages_of(root: Path, path: str) -> set[str]:
    """The document, or the documents that name a file beside them."""
    pages = [root / path] if path.endswith(".md") else sorted((root / "hami-core" / "docs").rglob("*.md"))
    name = "" if path.endswith(".md") else PurePosixPath(path).name
    return {str(page.relative_to(root)) for page in pages if page.is_file() and name in page.read_text("utf-8")}


def everything(root: Path) -> Selection:
    """Every suite that runs on a development build."""
    plugins = (str(folder.relative_to(root)) for folder in (root / "hami-plugins").glob("*/tests"))
    return Selection(True, {"tests/python", "tests/abi", "tests/ci", *plugins})
