"""The native library is compiled with the parsers that pyproject.toml names."""

from __future__ import annotations

import re
from pathlib import Path

from hami_serve import plugin

PROJECT = Path(__file__).resolve().parent.parent / "pyproject.toml"


def test_the_report_names_the_parsers_and_their_versions() -> None:
    """So each table also names the version that its archive has."""
    text = PROJECT.read_text("utf-8")
    named = re.findall(
        r"^\[tool\.hami-build\.sources\.(\w+)\]$.*?^version = \"(.+?)\"$", text, re.MULTILINE | re.DOTALL
    )
    parsers = plugin.hami_report()["parsers"]
    assert [tuple(each.split()[:2]) for each in parsers.split(", ")] == named
    assert [name for name, _ in named] == ["llhttp", "nghttp2", "simdjson", "zlib"]
