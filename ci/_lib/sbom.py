"""The bill of materials of a wheel, as CycloneDX: what of others is inside it. What it needs is in its METADATA."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from email.message import Message
from typing import Any

from .paths import REQUIREMENTS


@dataclass(frozen=True)
class Part:
    """Somebody else's code that is inside a wheel."""

    name: str
    version: str
    license: str
    purl: str

    def component(self) -> dict[str, Any]:
        return {
            "type": "library",
            "bom-ref": self.purl,
            "name": self.name,
            "version": self.version,
            "licenses": [{"expression": self.license}],
            "purl": self.purl,
        }


def pybind11() -> Part:
    """What every binary of the core has compiled in."""
    version = pinned("pybind11")
    return Part("pybind11", version, "BSD-3-Clause", f"pkg:pypi/pybind11@{version}")


def cxx_library(version: str) -> Part:
    """The C++ library that the compiler of record links statically; others leave it to the system."""
    return Part("libc++", version, "Apache-2.0 WITH LLVM-exception", f"pkg:generic/llvm-libcxx@{version}")


def pinned(package: str) -> str:
    """The version of `package` in ci/requirements/backend.txt."""
    lines = (REQUIREMENTS / "backend.txt").read_text("utf-8").splitlines()
    return next(line.removeprefix(f"{package}==") for line in lines if line.startswith(f"{package}=="))


def document(metadata: Message, contains: Sequence[Part]) -> str:
    """The bill of materials of the wheel with these METADATA."""
    name, version = metadata["Name"], metadata["Version"]
    own = Part(name, version, metadata["License-Expression"], f"pkg:pypi/{name}@{version}")
    bill = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": own.component()},
        "components": [part.component() for part in contains],
        "dependencies": [{"ref": own.purl, "dependsOn": [part.purl for part in contains]}],
    }
    return json.dumps(bill, indent=2) + "\n"


def summary(text: str) -> tuple[str, list[str]]:
    """What a bill of materials is about, and what it lists, each with its version."""
    bill = json.loads(text)
    about, parts = bill["metadata"]["component"], bill.get("components", [])
    return f"{about['name']} {about['version']}", [f"{part['name']} {part['version']}" for part in parts]
