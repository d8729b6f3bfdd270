"""The checks that run nothing of the product: linters, formatters, types of the package, layers, prose."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from hami_build.steps import environment

from .checkout import known_files
from .paths import CACHE, ROOT

CPP_FOLDERS = ("hami-core", "hami-plugins", "tests/cpp", "tests/abi", "tests/fuzz", "tests/bench", "examples")
CPP_SUFFIXES = (".c", ".h", ".cpp", ".hpp")


@dataclass(frozen=True)
class Check:
    """One command; it fails with an exit status other than 0."""

    name: str
    command: Sequence[object]

    def run(self, *, capture: bool = False) -> subprocess.CompletedProcess[str]:
        output = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT} if capture else {}
        env = environment(MYPY_CACHE_DIR=str(CACHE / "mypy"), RUFF_CACHE_DIR=str(CACHE / "ruff"))
        return subprocess.run(list(map(str, self.command)), cwd=ROOT, env=env, check=False, text=True, **output)  # type: ignore[call-overload,no-any-return]


def python_commands() -> list[Path]:
    """The commands of ci/, which linters do not recognise by a suffix."""
    candidates = (path for path in sorted((ROOT / "ci").iterdir()) if path.is_file() and not path.suffix)
    return [path for path in candidates if path.read_bytes().startswith(b"#!/usr/bin/env python3")]


def cpp_files() -> list[Path]:
    """The C and C++ sources that clang-format looks after."""
    return [ROOT / name for name in known_files(ROOT, [ROOT / folder for folder in CPP_FOLDERS]) if is_cpp(name)]


def is_cpp(name: str) -> bool:
    return name.endswith(CPP_SUFFIXES)


def spelled_files() -> list[str]:
    """The files that codespell reads; see .codespellrc."""
    return [name for name in known_files(ROOT) if "tests" not in name.split("/")]


def checks(python: Path) -> list[Check]:
    """Every check, from the fastest to the slowest; `python` has the packages of ci/requirements/checks.txt."""
    formatter = python.with_name("clang-format")
    return [
        Check("ruff check", [python, "-m", "ruff", "check", "--quiet", ROOT, *python_commands()]),
        Check("ruff format", [python, "-m", "ruff", "format", "--quiet", "--check", ROOT, *python_commands()]),
        Check("layers", [python, ROOT / "ci" / "check_layers.py"]),
        Check("clang-format", [formatter, "--dry-run", "--Werror", *cpp_files()]),
        Check("spelling", [python.with_name("codespell"), *spelled_files()]),
        Check("prose", [python, ROOT / "ci" / "prose"]),
        Check("mypy", [python, "-m", "mypy"]),
    ]


def fixes(python: Path) -> list[Check]:
    """What repairs the findings of linters and formatters."""
    return [
        Check("ruff check --fix", [python, "-m", "ruff", "check", "--quiet", "--fix", ROOT, *python_commands()]),
        Check("ruff format", [python, "-m", "ruff", "format", "--quiet", ROOT, *python_commands()]),
        Check("clang-format -i", [python.with_name("clang-format"), "-i", *cpp_files()]),
    ]
