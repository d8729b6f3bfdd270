"""The pages of the site that lie outside hami-core/docs, their places on the site, and the navigation."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

DOCS = "hami-core/docs"

# Files of the repository, and their places on the site. {0} is what the first * of the pattern matched.
OUTSIDE = (
    ("README.md", "contribute/repository.md"),
    ("CHANGELOG.md", "contribute/changelog.md"),
    ("CONTRIBUTING.md", "contribute/index.md"),
    ("CODE_OF_CONDUCT.md", "contribute/code-of-conduct.md"),
    ("SECURITY.md", "contribute/security.md"),
    ("hami-plugins/*/README.md", "plugins/{0}.md"),
    ("examples/*/README.md", "contribute/examples/{0}.md"),
    ("tests/fuzz/README.md", "contribute/fuzzing.md"),
    ("tests/coverage.md", "contribute/coverage.md"),
    ("tests/bench/README.md", "benchmarks/index.md"),
    ("tests/bench/peers/README.md", "benchmarks/peers.md"),
    ("tests/bench/*.md", "benchmarks/{0}.md"),
    ("tests/gpu/results.md", "benchmarks/gpu.md"),
    ("tests/gpu/measured-once.md", "benchmarks/gpu-measured-once.md"),
    ("tests/wheels/results.md", "benchmarks/wheels.md"),
    ("tests/reliability/results.md", "benchmarks/reliability.md"),
)


def _pattern(text: str) -> re.Pattern[str]:
    """Return the expression for a pattern in which * matches all but slashes."""
    return re.compile(re.escape(text).replace(r"\*", "([^/]*)"))


def outside(root: Path) -> dict[str, str]:
    """Return the place on the site of each file outside hami-core/docs that is a page."""
    found: dict[str, str] = {}
    for pattern, place in OUTSIDE:
        regex = _pattern(pattern)
        for file in sorted(root.glob(pattern)):
            name = file.relative_to(root).as_posix()
            match = regex.fullmatch(name)
            if match and name not in found:
                found[name] = place.format(*match.groups())
    return found


def inside(root: Path) -> dict[str, str]:
    """Return the place on the site of each page in hami-core/docs: its path below that folder."""
    docs = root / DOCS
    names = sorted(file.relative_to(docs).as_posix() for file in docs.rglob("*.md"))
    return {f"{DOCS}/{name}": name for name in names}


def every(root: Path) -> dict[str, str]:
    """Return the place on the site of each file of the repository that is a page."""
    return {**inside(root), **outside(root)}


def expanded(nav: list[Any], places: Iterable[str]) -> list[Any]:
    """Replace each pattern in `nav`, such as `decisions/*`, by the matching pages that `nav` does not list."""
    listed = {page for page in _entries(nav) if "*" not in page}
    free = [place for place in sorted(places) if place not in listed]
    return _expand(nav, free)


def _entries(nav: list[Any]) -> Iterable[str]:
    for item in nav:
        for value in item.values() if isinstance(item, dict) else [item]:
            if isinstance(value, list):
                yield from _entries(value)
            else:
                yield value


def _expand(nav: list[Any], free: list[str]) -> list[Any]:
    items: list[Any] = []
    for item in nav:
        if isinstance(item, dict):
            lists = {title: _expand(value, free) for title, value in item.items() if isinstance(value, list)}
            items.append(item | lists)
        elif "*" in item:
            matches = [place for place in free if _pattern(item).fullmatch(place)]
            items += matches
            free[:] = [place for place in free if place not in matches]
        else:
            items.append(item)
    return items
