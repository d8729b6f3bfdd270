"""Writes the bill of materials of a wheel, as CycloneDX: third-party code inside it. METADATA lists requirements."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from email.message import Message
from typing import Any


@dataclass(frozen=True)
class Part:
    """Third-party code inside a wheel."""

    name: str
    version: str
    license: str  # an SPDX expression; empty: not known
    purl: str

    def component(self) -> dict[str, Any]:
        licenses = {"licenses": [{"expression": self.license}]} if self.license else {}
        return {
            "type": "library",
            "bom-ref": self.purl,
            "name": self.name,
            "version": self.version,
            **licenses,
            "purl": self.purl,
        }


def pybind11(version: str) -> Part:
    """Return pybind11, which is compiled into every binary that uses it."""
    return Part("pybind11", version, "BSD-3-Clause", f"pkg:pypi/pybind11@{version}")


def cxx_library(version: str) -> Part:
    """Return the C++ library, which zig links statically; other compilers use that of the system."""
    return Part("libc++", version, "Apache-2.0 WITH LLVM-exception", f"pkg:generic/llvm-libcxx@{version}")


def document(metadata: Message, contains: Sequence[Part]) -> str:
    """Return the bill of materials of the wheel with these METADATA."""
    name, version = metadata["Name"], metadata["Version"]
    own = Part(name, version, metadata["License-Expression"] or "", f"pkg:pypi/{name}@{version}")
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
    """Return the subject of a bill of materials and its components, each with its version."""
    bill = json.loads(text)
    about, parts = bill["metadata"]["component"], bill.get("components", [])
    return f"{about['name']} {about['version']}", [f"{part['name']} {part['version']}" for part in parts]
