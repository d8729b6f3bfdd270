"""Types that annotations use; nothing here has a meaning at run time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

if TYPE_CHECKING:
    from hami import Request
    from hami.types import BackendHandle
else:
    BackendHandle = Request = Any

Batch: TypeAlias = "list[Request]"


class Forwards(Protocol):
    """A backend, or what can run a batch in its place."""

    def forward(self, batch: Batch, /) -> None: ...


__all__ = ["BackendHandle", "Batch", "Forwards", "Request"]
