"""Adds pages outside hami-core/docs, generated pages, and files that pages link to, to the site that MkDocs builds.

Every file has its path in the repository, so that MkDocs checks links between all of them as code hosts resolve them.
hami-core/mkdocs.yml names this file. `ci/docs` sets HAMI_GENERATED to the folder with the generated pages and
HAMI_MERMAID to the script that draws diagrams; without it, diagrams are shown as text.
"""

from __future__ import annotations

import os
import posixpath
import re
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[2]
DOCS = "hami-core/docs/"
OUTSIDE = (
    "*.md",
    "hami-plugins/*/README.md",
    "examples/*/README.md",
    "tests/*.md",
    "tests/*/*.md",
    "tests/bench/peers/*.md",
)
MERMAID = "assets/mermaid.min.js"
LINK = re.compile(r"(?:\]\(|^\[[^\]\n]+\]: )([^)#\s:]+)", re.MULTILINE)
FENCE = re.compile(r"(^```.*?^```[ ]*$)", re.MULTILINE | re.DOTALL)


def on_config(config: Any) -> Any:
    """Show diagrams as text if the script that draws them is missing."""
    if not os.environ.get("HAMI_MERMAID"):
        config.mdx_configs["pymdownx.superfences"] = {}
    return config


def on_files(files: Files, config: Any) -> Files:
    """Give each page its path in the repository, and add what lies outside of the folder of the documents."""
    from mkdocs.structure.files import File, Files

    of_theme = [file for file in files if file.src_dir != config.docs_dir]
    pages = {DOCS + file.src_uri: Path(file.abs_src_path or "") for file in files if file.src_dir == config.docs_dir}
    pages |= {file.relative_to(ROOT).as_posix(): file for pattern in OUTSIDE for file in sorted(ROOT.glob(pattern))}
    generated = Path(os.environ["HAMI_GENERATED"])
    pages |= {DOCS + file.relative_to(generated).as_posix(): file for file in sorted(generated.rglob("*.md"))}
    for source, file in list(pages.items()):
        for target in LINK.findall(file.read_text("utf-8")) if file.suffix == ".md" else ():
            name = posixpath.normpath(posixpath.join(posixpath.dirname(source), target))
            if not name.startswith("..") and (ROOT / name).is_file():
                pages.setdefault(name, ROOT / name)
    made = [File.generated(config, source, abs_src_path=str(file)) for source, file in pages.items()]
    for each in made:
        inside = each.dest_uri.startswith(DOCS)
        each.dest_uri = each.dest_uri.removeprefix(DOCS) if inside else f"repository/{each.dest_uri}"
    if script := os.environ.get("HAMI_MERMAID"):
        made.append(File.generated(config, MERMAID, abs_src_path=script))
    config.nav = expanded(config.nav, set(pages), [name for name in sorted(pages) if name.endswith(".md")])
    return Files([*of_theme, *made])


def expanded(nav: list[Any], pages: set[str], free: list[str]) -> list[Any]:
    """Return the navigation with paths in the repository; a pattern stands for pages that are listed nowhere else."""
    listed = set(re.findall(r"'([^'*]+\.md)'", repr(nav)))
    free[:] = [name for name in free if name not in listed and name.removeprefix(DOCS) not in listed]

    def places(item: Any) -> Iterable[Any]:
        if isinstance(item, dict):
            for title, value in item.items():
                yield {title: walked(value) if isinstance(value, list) else next(iter(places(value)))}
        elif "*" in item:
            pattern = re.escape(item).replace(r"\*", "[^/]*")
            found = [name for name in free if re.fullmatch(pattern, name.removeprefix(DOCS))]
            free[:] = [name for name in free if name not in found]
            yield from found
        else:
            yield item if item in pages else DOCS + item

    def walked(items: list[Any]) -> list[Any]:
        return [place for item in items for place in places(item)]

    return walked(nav)


def on_page_markdown(markdown: str, page: Page, config: Any, files: Files) -> str:
    """Adapt what code hosts render and Python-Markdown does not."""
    text = re.sub(r"^<!-- file: (.+) -->\n(?:<!--.*-->\n)*```(\w+)$", r'```\2 title="\1"', markdown, flags=re.MULTILINE)
    pieces = FENCE.split(text)
    for at in range(0, len(pieces), 2):  # outside of code
        pieces[at] = re.sub(r"^(?:  )+(?=[*-] )", lambda match: match[0] * 2, pieces[at], flags=re.MULTILINE)
        pieces[at] = re.sub(r"^\|.*$", one_bar, pieces[at], flags=re.MULTILINE)
    return "".join(pieces)


def one_bar(row: re.Match[str]) -> str:
    """Return the row of a table with a bar in code as MkDocs expects it."""
    return re.sub(r"`[^`]*`", lambda code: code[0].replace(r"\|", "|"), row[0])


def on_post_page(output: str, page: Page, config: Any) -> str:
    """Load the script for diagrams on pages that have one, before the theme would load it from elsewhere."""
    if 'class="mermaid"' not in output:
        return output
    script = posixpath.relpath(MERMAID, posixpath.dirname(page.file.dest_uri) or ".")
    return output.replace("</head>", f'<script src="{script}"></script></head>', 1)
