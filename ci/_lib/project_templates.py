"""Writes what `hami new-plugin` writes, for checks that run without hami-core."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from .paths import ROOT, read_toml

TEMPLATES = ROOT / "hami-plugins" / "hami-tools" / "python" / "hami_tools" / "templates"
VALUES = {"@NAME@": "acme-add", "@MODULE@": "acme_add", "@PLUGIN@": "add", "@BACKEND@": "AcmeAdd", "@CORE@": "2.0"}


def kinds() -> list[str]:
    """Return the names of all kinds of project."""
    return [kind for kind in read_toml(TEMPLATES / "kinds.toml") if kind != "common"]


def values_of(kind: str) -> dict[str, Any]:
    """Return the folders of a kind, and the values of its placeholders."""
    table = read_toml(TEMPLATES / "kinds.toml")
    return {**table["common"], **table[kind]}


def write(kind: str, folder: Path) -> None:
    """Write the project acme-add of one kind into a folder."""
    own = values_of(kind)
    values = {**{f"@{name}@": value for name, value in own.items() if name.isupper()}, **VALUES}
    for root in (TEMPLATES / name for name in own["folders"]):
        for template in sorted(root.rglob("*.in")):
            target = folder / _filled(str(template.relative_to(root).with_suffix("")), values)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(_filled(template.read_text("utf-8"), values), "utf-8")


def _filled(text: str, values: dict[str, str]) -> str:
    for placeholder, value in values.items():
        text = text.replace(placeholder, value)
    return text
