"""Which tests a change can affect: an explicit table from paths to tests.

The table errs on the side of too few tests: `ci/check` answers within a minute, and `ci/test` runs everything. The
first row whose pattern matches a path counts; `*` also matches slashes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath

PYTHON = "tests/python"
# Fast tests of every part of the package, together about ten seconds: what a change in the core affects first.
SMOKE_FILES = tuple(
    f"{PYTHON}/test_{name}.py"
    for name in (
        "async",
        "backend",
        "cli",
        "config",
        "config_values",
        "errors",
        "event",
        "graphs",
        "package",
        "pipe",
        "plugin_messages",
        "plugins",
        "python_backends",
        "queue",
        "retry_isolation",
        "scatter",
        "scheduling",
        "submit",
        "tensors",
        "typed_dict",
        "types",
    )
)


@dataclass(frozen=True)
class Selection:
    """What to run: the C++ unit tests, files or folders for pytest, the blocks of documents."""

    cpp: bool = False
    files: frozenset[str] = frozenset()
    pages: frozenset[str] = frozenset()
    notes: frozenset[str] = frozenset()  # tests that need more than a development build, and what runs them

    def __or__(self, other: Selection) -> Selection:
        return Selection(
            self.cpp or other.cpp, self.files | other.files, self.pages | other.pages, self.notes | other.notes
        )


Effect = Callable[[Path, str], Selection]


def files(*paths: str) -> Effect:
    return lambda root, path: Selection(files=frozenset(paths))


def note(text: str) -> Effect:
    return lambda root, path: Selection(notes=frozenset([text]))


def nothing(root: Path, path: str) -> Selection:
    """The static checks see it, no test does."""
    return Selection()


def cpp(root: Path, path: str) -> Selection:
    return Selection(cpp=True)


def itself(root: Path, path: str) -> Selection:
    """The file is a test file."""
    return Selection(files=frozenset([path]))


def page(root: Path, path: str) -> Selection:
    """The code blocks and links of a document."""
    own = frozenset([f"{PYTHON}/test_reference.py"]) if "/reference/" in path else frozenset()
    return Selection(pages=frozenset([path]), files=own)


def pages_beside(root: Path, path: str) -> Selection:
    """Documents that quote the file."""
    name = PurePosixPath(path).name
    documents = sorted((root / "hami-core" / "docs").rglob("*.md"))
    return Selection(pages=frozenset(str(d.relative_to(root)) for d in documents if name in d.read_text("utf-8")))


def tests_that(root: Path, folder: str, matches: Callable[[Path, str], bool]) -> Selection:
    found = (file for file in sorted((root / folder).glob("test_*.py")) if matches(file, file.read_text("utf-8")))
    return Selection(files=frozenset(str(file.relative_to(root)) for file in found))


def module(root: Path, path: str) -> Selection:
    """Tests that import a module of the package, and those that have its name."""
    parts = PurePosixPath(path).with_suffix("").parts[len(("hami-core", "python")) :]
    parts = parts[:-1] if parts[-1] == "__init__" else parts
    words = "_".join(part.strip("_") for part in parts[1:]).split("_")
    names = {f"test_{'_'.join(words[start:])}.py" for start in range(len(words))}
    package, name = ".".join(parts[:-1]), parts[-1]
    imported = re.compile(rf"\b{re.escape('.'.join(parts))}\b|from {re.escape(package)} import .*\b{re.escape(name)}\b")
    return tests_that(root, PYTHON, lambda file, text: file.name in names or imported.search(text) is not None)


def users(root: Path, path: str) -> Selection:
    """The tests in the same folder that mention a helper file; all of them for a conftest.py."""
    folder, stem = str(PurePosixPath(path).parent), PurePosixPath(path).stem
    if stem == "conftest":
        return Selection(files=frozenset([folder]))
    return tests_that(root, folder, lambda file, text: re.search(rf"\b{re.escape(stem)}\b", text) is not None)


def command(root: Path, path: str) -> Selection:
    """The tests of ci/ that mention a file of it by name; all of them if none does."""
    stem = PurePosixPath(path).stem
    mention = re.compile(rf"\b{re.escape(stem)}\b")
    found = tests_that(root, "tests/ci", lambda file, text: stem in file.name or mention.search(text) is not None)
    return found if found.files else Selection(files=frozenset(["tests/ci"]))


def plugin(root: Path, path: str) -> Selection:
    """All tests of the plugin; for its README those of the README."""
    folder = "/".join(PurePosixPath(path).parts[:2])
    readme = f"{folder}/tests/test_readme.py"
    if path == f"{folder}/README.md" and (root / readme).is_file():
        return Selection(files=frozenset([readme]))
    return Selection(files=frozenset([f"{folder}/tests"]))


smoke = files(*SMOKE_FILES)
serving = note("the tests of hami-serve with other systems need their environments: ci/test serving")
abi = files("tests/abi")
configurations = files("tests/ci/test_configurations.py")

TABLE: tuple[tuple[str, tuple[Effect, ...]], ...] = (
    ("hami-core/src/*", (cpp, smoke)),
    ("hami-core/include/*", (cpp, smoke, abi)),
    ("hami-core/embed/*", (cpp,)),
    ("hami-core/cmake/*", (abi,)),
    ("hami-core/CMakeLists.txt", (cpp, smoke)),
    ("hami-plugins/hami-tools/python/hami_tools/templates/*", (plugin, configurations)),
    ("hami-core/python/hami/*.py*", (module, smoke)),
    ("hami-core/python/*", (smoke,)),
    ("hami-core/mkdocs.yml", (files("tests/ci/test_site.py"),)),
    ("hami-core/docs/*.md", (page,)),
    ("hami-core/docs/*", (cpp, pages_beside)),
    ("hami-plugins/hami-serve/tests/conformance/*", (serving,)),
    ("hami-plugins/hami-serve/python/hami_serve/ray.py", (plugin, serving)),
    ("hami-plugins/*/tests/test_*.py", (itself,)),
    ("hami-plugins/*/tests/gpu/*", (note("the GPU tests of plugins need a GPU: ci/gpu"),)),
    ("hami-plugins/*/bench/*", (nothing,)),
    ("hami-plugins/*/pyproject.toml", (plugin, files(f"{PYTHON}/test_catalog.py"), configurations)),
    ("hami-plugins/*", (plugin,)),
    ("tests/python/test_*.py", (itself,)),
    ("tests/python/*", (users,)),
    ("tests/cpp/*", (cpp,)),
    ("tests/fuzz/*", (cpp,)),
    ("tests/abi/golden/*", (cpp, abi)),
    ("tests/abi/test_*.py", (itself,)),
    ("tests/abi/*", (abi,)),
    ("tests/plugins/test_joined_is_alone.py", (itself,)),
    ("tests/plugins/test_*.py", (note("tests/plugins needs wheels: ci/test installed"),)),
    ("tests/plugins/*", (files(f"{PYTHON}/test_plugins.py", f"{PYTHON}/test_plugin_messages.py"),)),
    ("tests/ci/test_*.py", (itself,)),
    ("tests/ci/*", (users,)),
    ("tests/wheels/*", (note("tests/wheels needs wheels: ci/test wheels systems containers"),)),
    ("tests/bench/*", (nothing,)),
    ("tests/reliability/*", (nothing,)),
    ("tests/gpu/*", (nothing,)),
    ("tests/*.md", (nothing,)),
    ("findings/*", (nothing,)),
    ("ci/requirements/serving-*", (configurations, serving)),
    ("ci/requirements/*", (configurations,)),
    ("ci/*", (command,)),
    (".ci/*", (nothing,)),
    (".github/workflows/*", (configurations,)),
    (".github/*", (nothing,)),
    ("docker/*", (configurations,)),
    ("examples/*", (files("hami-plugins/hami-tools/tests/test_new_plugin.py"),)),
    ("README.md", (files(f"{PYTHON}/test_readme.py"),)),
    ("CHANGELOG.md", (files("tests/ci/test_release.py"),)),
    ("pyproject.toml", (files(f"{PYTHON}/test_package.py", "tests/ci/test_release.py"), configurations)),
    ("CMakeLists.txt", (cpp, smoke)),
    ("CMakePresets.json", (cpp,)),
    ("[!/]*", (nothing,)),  # other files in the root folder, see test_check.py
)


def row_of(path: str) -> tuple[str, tuple[Effect, ...]] | None:
    """The row of the table that counts for `path`; a path in an unknown folder has none."""
    rows = (row for row in TABLE if fnmatchcase(path, row[0]))
    found = next(rows, None)
    return None if found is TABLE[-1] and "/" in path else found


def affected(root: Path, paths: Iterable[str]) -> Selection:
    """The tests that changes of `paths` (relative to `root`) can affect; files that are gone are left out."""
    rows = ((path, row_of(path)) for path in paths)
    found = Selection()
    for path, row in rows:
        for effect in row[1] if row else ():
            found |= effect(root, path)
    there = frozenset(file for file in found.files if (root / file).exists())
    folders = {file for file in there if (root / file).is_dir()}
    kept = frozenset(file for file in there if file in folders or str(PurePosixPath(file).parent) not in folders)
    return Selection(found.cpp, kept, frozenset(page for page in found.pages if (root / page).exists()), found.notes)


def everything(root: Path) -> Selection:
    """Every suite that runs on a development build."""
    plugins = (str(folder.relative_to(root)) for folder in sorted((root / "hami-plugins").glob("*/tests")))
    return Selection(True, frozenset([PYTHON, "tests/abi", "tests/ci", *plugins]))
