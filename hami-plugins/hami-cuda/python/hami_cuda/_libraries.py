"""Finds shared libraries in packages, without importing them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from importlib.util import find_spec
from pathlib import Path


def installed(places: Iterable[tuple[str, str]]) -> Iterator[Path]:
    """Return the files of each place: a package, and a pattern relative to the folder that contains it."""
    for package, pattern in places:
        spec = find_spec(package)
        for folder in (spec.submodule_search_locations if spec else None) or ():
            yield from sorted(Path(folder).parent.glob(pattern))
