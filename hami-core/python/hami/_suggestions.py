"""Suggests similar names in error messages."""

from __future__ import annotations

from hami import _core

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable


def did_you_mean(name: str, candidates: Iterable[str], *, quoted: bool = False) -> str:
    """Return "; did you mean …?" with the candidates that are spelled like `name`; empty if there are none."""
    return _core.did_you_mean(_core.near_names(name, list(candidates)), quoted=quoted)
