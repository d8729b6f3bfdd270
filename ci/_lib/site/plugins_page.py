"""The start page of the plugins: each package, what it is for, and its backends."""

from __future__ import annotations

from pathlib import Path

from ..paths import pyproject
from . import plugin_keys

PLACE = "plugins/index.md"
TOP = """\
# Plugins

Each plugin is a package with a version of its own. [Plugins](../explanation/plugins.md) explains how HAMi finds them,
and [compatibility](../reference/compatibility.md) which versions work together. The backends of the core have
[their own reference](../reference/backends.md), and the keys of all backends are in [one
table](../reference/all-keys.md).

This page is generated from the metadata and the sources of the plugins.
"""


def page(root: Path) -> str:
    """Return the Markdown of the page."""
    sections = [TOP]
    for plugin, backends in plugin_keys.every(root).items():
        project = pyproject(root / "hami-plugins" / plugin)["project"]
        sections.append(f"\n## [{plugin}]({plugin}.md)\n\n{project['description']}\n\n")
        rows = [f"| `{backend.name}` | {backend.summary.replace('|', chr(92) + '|')} |\n" for backend in backends]
        pipelines = project.get("entry-points", {}).get("hami.pipelines", {})
        rows += [f'| pipeline `{name}` | packaged: `hami.pipe("{name}")` |\n' for name in sorted(pipelines)]
        if rows:
            sections += ["| backend | what it does |\n|---|---|\n", *rows]
    return "".join(sections)
