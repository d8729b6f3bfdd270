"""Types that annotations use; nothing here has a meaning at run time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from hami import BackendHandle, Request
else:
    BackendHandle = Request = Any

Batch: TypeAlias = "list[Request]"

__all__ = ["BackendHandle", "Batch", "Request"]
