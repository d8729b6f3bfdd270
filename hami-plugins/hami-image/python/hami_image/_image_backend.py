"""ImageBackend: the base class of all backends in this package."""

from __future__ import annotations

from typing import Any

import hami
from numpy.typing import NDArray


class ImageBackend(hami.Backend):
    """Calls `apply` for each request.

    Subclasses keep no state between requests and OpenCV releases the GIL, so any number of threads may call them.
    """

    max = 1
    thread = "concurrent"
    lightweight = True

    def forward(self, batch: list[Any]) -> None:
        for item in batch:
            item["result"] = self.apply(item)

    def apply(self, item: Any) -> NDArray[Any]:
        """Return the result for one request."""
        raise NotImplementedError
