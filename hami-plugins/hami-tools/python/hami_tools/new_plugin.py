"""The command `hami new-plugin`: writes a complete plugin project with tests that pass."""

from __future__ import annotations

import argparse
import json
import keyword
import re
import shlex
import sys
from pathlib import Path
from typing import Any

import hami
from hami import PluginError
from hami.packages import CORE, check_name, first_party

TEMPLATES = Path(__file__).with_name("templates")
NATIVE = ("cpp", "cuda")
PYTHON_MODULES = sys.stdlib_module_names | {"test"}  # the list lacks "test", which is a module of Python too
# Names that a class in C++ cannot have: the keywords, and std and hami, which the generated source uses.
CPP_WORDS = """
alignas alignof and and_eq asm auto bitand bitor bool break case catch char char8_t char16_t char32_t class co_await
co_return co_yield compl concept const consteval constexpr constinit const_cast continue decltype default delete do
double dynamic_cast else enum explicit export extern false float for friend goto hami if inline int long mutable
namespace new noexcept not not_eq nullptr operator or or_eq private protected public register reinterpret_cast
requires return short signed sizeof static static_assert static_cast std struct switch template this thread_local
throw true try typedef typeid typename union unsigned using virtual void volatile wchar_t while xor xor_eq
"""


def new_plugin(arguments: argparse.Namespace) -> int:
    """Write the project and print its files."""
    folder = Path(arguments.folder or arguments.name)
    files = write_project(arguments.name, arguments.kind, folder, arguments.backend)
    if arguments.json:
        print(json.dumps([str(path) for path in files]))
    else:
        print("\n".join(map(str, files)))
        print(f"\nto try it:  pip install {shlex.quote(f'{folder}/[test]')} && pytest {shlex.quote(f'{folder}/tests')}")
        print(f"to ship it: pip install 'hami-build[all]' && hami-build wheel {shlex.quote(str(folder))}")
    return 0


def write_project(name: str, kind: str, folder: Path, backend: str = "") -> list[Path]:
    """Write a project of one of the kinds in kinds.toml into a new folder; return its files."""
    if not re.fullmatch(r"[a-z][a-z0-9]*(-[a-z0-9]+)*", name):
        raise PluginError(
            f'"{name}" is not a valid plugin name: use lower-case letters, digits and single -, such as acme-resize'
        )
    if name in {"hami", CORE, *first_party().plugins}:
        raise PluginError(f'"{name}" is the name of a package of HAMi; choose another name, such as acme-resize')
    if name.replace("-", "_") in PYTHON_MODULES:
        raise PluginError(f'"{name}" is the name of a module of Python; choose another name, such as acme-{name}')
    if keyword.iskeyword(name):
        raise PluginError(f'"{name}" is a keyword of Python; choose another name, such as acme-{name}')
    backend = _backend_name(name, kind, backend)
    if folder.exists():
        raise PluginError(f"the folder {folder} exists already; choose another one with --folder")
    kind_values = kinds()[kind]
    values = {
        **{f"@{key}@": value for key, value in kind_values.items() if key.isupper()},
        "@NAME@": name,
        "@MODULE@": name.replace("-", "_"),
        "@PLUGIN@": name.partition("-")[2] or name,
        "@BACKEND@": backend,
        "@CORE@": hami.__version__,
    }
    written = []
    roots = [TEMPLATES / root for root in kind_values["folders"]]
    templates = {str(path.relative_to(root)): path for root in roots for path in root.rglob("*.in")}
    for relative, template in sorted(templates.items()):
        path = folder / _filled(relative.removesuffix(".in"), values)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(_filled(template.read_text("utf-8"), values), "utf-8")
        written.append(path)
    return written


def _backend_name(name: str, kind: str, given: str) -> str:
    """Return the name of the backend; "" if the kind has none."""
    if kind == "pipeline":
        if given:
            raise PluginError("a plugin of pipelines has no backends; leave out --backend")
        return ""
    backend = given or "".join(part.capitalize() for part in name.split("-"))
    check_name(backend)
    if keyword.iskeyword(backend) or (kind in NATIVE and backend in CPP_WORDS.split()):
        language = "Python" if keyword.iskeyword(backend) else "C++"
        raise PluginError(f'"{backend}" is a keyword of {language}; choose another name with --backend')
    if backend in {info.name for info in hami.backends().values() if info.owner == CORE}:
        raise PluginError(f'"{backend}" is the name of a backend of the core; choose another name with --backend')
    return backend


def kinds() -> dict[str, dict[str, Any]]:
    """Return the kinds of project: the folders with templates, and the values of placeholders."""
    try:
        import tomllib
    except ModuleNotFoundError:  # before Python 3.11
        import tomli as tomllib
    table = tomllib.loads((TEMPLATES / "kinds.toml").read_text("utf-8"))
    common = table.pop("common")
    return {kind: {**common, **values} for kind, values in table.items()}


def _filled(text: str, values: dict[str, str]) -> str:
    for placeholder, value in values.items():
        text = text.replace(placeholder, value)
    return text
