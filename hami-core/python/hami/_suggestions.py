"""Suggests similar names in error messages."""

from __future__ import annotations

import os

from hami import _core
from hami._text import is_text, printable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable


def did_you_mean(name: str, candidates: Iterable[str], *, quoted: bool = False, folder: str = "") -> str:
    """Return "; did you mean …?" with the candidates that are spelled like `name`; empty if there are none.

    `folder` is shown before each candidate.
    """
    near = _core.near_names(printable(name), list(filter(is_text, candidates)))
    return _core.did_you_mean([os.path.join(folder, candidate) for candidate in near], quoted=quoted)
