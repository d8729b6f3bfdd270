"""Shows the examples of docstrings as code; griffe, which reads docstrings, expects a section of their own."""

from __future__ import annotations

import re
from typing import Any

import griffe

_DOCTEST = re.compile(r"^(?P<indent>[ ]*)>>> .*\n?(?:^(?P=indent)\S.*\n?)*", re.MULTILINE)


class Examples(griffe.Extension):  # type: ignore[misc]
    """Puts each interactive example, up to an empty line, into a code block."""

    def on_object(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        if obj.docstring:
            obj.docstring.value = _DOCTEST.sub(
                lambda match: f"{match['indent']}```pycon\n{match[0].rstrip()}\n{match['indent']}```\n",
                obj.docstring.value,
            )
