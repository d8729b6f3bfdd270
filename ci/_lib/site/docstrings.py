"""Shows the examples of docstrings as code; griffe, which reads docstrings, expects a section of their own."""

from __future__ import annotations

from typing import Any

import griffe

from _lib.site.page_text import fenced  # ci/site_hooks.py has loaded it


class Examples(griffe.Extension):  # type: ignore[misc]
    """Applies `fenced` to every docstring."""

    def on_object(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        if obj.docstring:
            obj.docstring.value = fenced(obj.docstring.value)
