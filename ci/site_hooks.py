"""Connects MkDocs with ci/_lib/site: pages outside hami-core/docs, generated pages, links between all of them.

hami-core/mkdocs.yml names this file. `ci/docs` sets HAMI_MERMAID to the script that draws diagrams; without it,
diagrams are shown as text.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from _lib.paths import ROOT
from _lib.site import keys, page_text, pages, plugins_page, python_api
from mkdocs.plugins import get_plugin_logger
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ASSETS = Path(__file__).parent / "_lib" / "site" / "assets"
GENERATED = {
    keys.PLACE: keys.page,
    plugins_page.PLACE: plugins_page.page,
    python_api.API_PLACE: python_api.api_page,
    python_api.COMMANDS_PLACE: python_api.commands_page,
}
MERMAID = "assets/mermaid.min.js"
DIAGRAM = 'class="mermaid"'
log = get_plugin_logger("site")


class Sources:
    """The pages of the checkout while the site is built."""

    def __init__(self) -> None:
        self.places = pages.every(ROOT)
        self.by_place = {place: source for source, place in self.places.items()}
        self.linked: dict[str, str] = {}  # files that are not pages, and their places on the site
        self.find = page_text.finder(ROOT, self.places, self.linked)


sources: Sources


def on_config(config: Any) -> Any:
    """Show diagrams as text if the script that draws them is missing."""
    if not os.environ.get("HAMI_MERMAID"):
        config.mdx_configs["pymdownx.superfences"] = {}
    return config


def on_files(files: Files, config: Any) -> Files:
    """Add the pages from outside, the generated pages, the files that pages link to, and the scripts."""
    global sources
    sources = Sources()
    for source, place in pages.outside(ROOT).items():
        files.append(File.generated(config, place, abs_src_path=str(ROOT / source)))
    for place, generate in GENERATED.items():
        files.append(File.generated(config, place, content=generate(ROOT)))
    for source, place in sources.places.items():
        page_text.converted((ROOT / source).read_text("utf-8"), source, place, sources.find)
    for source, place in sources.linked.items():
        files.append(File.generated(config, place, abs_src_path=str(ROOT / source)))
    for asset in sorted(ASSETS.iterdir()):
        files.append(File.generated(config, f"assets/{asset.name}", abs_src_path=str(asset)))
    if script := os.environ.get("HAMI_MERMAID"):
        files.append(File.generated(config, MERMAID, abs_src_path=script))
    config.nav = pages.expanded(config.nav, [file.src_uri for file in files.documentation_pages()])
    return files


def on_page_markdown(markdown: str, page: Page, config: Any, files: Files) -> str:
    """Adapt a page that is written for code hosts."""
    place = page.file.src_uri
    source = sources.by_place.get(place)
    if source is None:  # generated
        return markdown
    text, broken = page_text.converted(markdown, source, place, sources.find)
    for target in broken:
        log.warning("%s links to %s; no page or file is there (pages: ci/_lib/site/pages.py)", source, target)
    return text


def on_post_page(output: str, page: Page, config: Any) -> str:
    """Load the script for diagrams on pages that have one, before the theme would load it from elsewhere."""
    if DIAGRAM not in output:
        return output
    script = page_text.relative(MERMAID, page.file.dest_uri)
    return output.replace("</head>", f'<script src="{script}"></script></head>', 1)
