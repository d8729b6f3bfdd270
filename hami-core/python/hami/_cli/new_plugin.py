"""The command `hami new-plugin`: writes a complete plugin project, whose tests pass as it is written."""

from __future__ import annotations

import argparse
import json
import keyword
import re
import shlex
import sys
from pathlib import Path

from hami import _core
from hami._errors import PluginError
from hami._plugins import first_party as _first_party
from hami._runtime.backend_class import check_name

TEMPLATES = Path(__file__).parents[1] / "templates"
MODULES = sys.stdlib_module_names | {"test"}  # which is not listed there, and is imported before a package of that name
TAKEN = {"hami", "hami-core", *_first_party.DISTRIBUTIONS}
# What no class of C++ can be called, here also std and hami, which the source names.
CPP_WORDS = """
alignas alignof and and_eq asm auto bitand bitor bool break case catch char char8_t char16_t char32_t class co_await
co_return co_yield compl concept const consteval constexpr constinit const_cast continue decltype default delete do
double dynamic_cast else enum explicit export extern false float for friend goto hami if inline int long mutable
namespace new noexcept not not_eq nullptr operator or or_eq private protected public register reinterpret_cast
requires return short signed sizeof static static_assert static_cast std struct switch template this thread_local
throw true try typedef typeid typename union unsigned using virtual void volatile wchar_t while xor xor_eq
"""


def new_plugin(arguments: argparse.Namespace) -> int:
    """Write the project into a folder of its name."""
    folder = Path(arguments.folder or arguments.name)
    files = write_project(arguments.name, arguments.kind, folder, arguments.backend)
    if arguments.json:
        print(json.dumps([str(path) for path in files]))
    else:
        print("\n".join(map(str, files)))
        print(f"\nto try it:  pip install {shlex.quote(f'{folder}/[test]')} && pytest {shlex.quote(f'{folder}/tests')}")
    return 0


def write_project(name: str, kind: str, folder: Path, backend: str = "") -> list[Path]:
    """Write a project of `kind` ("cpp" or "python") into the new folder; return its files."""
    if not re.fullmatch(r"[a-z][a-z0-9]*(-[a-z0-9]+)*", name):
        raise PluginError(
            f'"{name}" is not a valid plugin name: use small letters, digits and single -, as in acme-resize'
        )
    if name in TAKEN:
        raise PluginError(f'"{name}" is a package of HAMi itself; choose another name, as in acme-resize')
    if name.replace("-", "_") in MODULES:
        raise PluginError(f'"{name}" is a module of Python itself; choose another name, as in acme-{name}')
    if keyword.iskeyword(name):
        raise PluginError(f'"{name}" means something in Python; choose another name, as in acme-{name}')
    backend = backend or "".join(part.capitalize() for part in name.split("-"))
    check_name(backend)
    if keyword.iskeyword(backend) or (kind == "cpp" and backend in CPP_WORDS.split()):
        language = "Python" if keyword.iskeyword(backend) else "C++"
        raise PluginError(f'"{backend}" means something in {language}; choose another name with --backend')
    if _core.is_defined(backend):
        raise PluginError(f'"{backend}" is a backend of the core; choose another name with --backend')
    if folder.exists():
        raise PluginError(f"{folder} exists already; choose another place with --folder")
    values = {
        "@NAME@": name,
        "@MODULE@": name.replace("-", "_"),
        "@PLUGIN@": name.partition("-")[2] or name,
        "@BACKEND@": backend,
        "@CORE@": _core.__version__,
    }
    written = []
    for template in sorted((TEMPLATES / kind).rglob("*.in")):
        path = folder / _filled(str(template.relative_to(TEMPLATES / kind)).removesuffix(".in"), values)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(_filled(template.read_text("utf-8"), values), "utf-8")
        written.append(path)
    return written


def _filled(text: str, values: dict[str, str]) -> str:
    for placeholder, value in values.items():
        text = text.replace(placeholder, value)
    return text
