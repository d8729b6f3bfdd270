"""The parameters of the backends that open an engine."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import hami

from hami_trt._gpu import device_for
from hami_trt._tensorrt import Library, find_library


class OpensEngine(hami.Backend):
    """Base of the backends that leave an engine in the options of their instance; requests pass unchanged."""

    thread = "concurrent"

    library: Annotated[Literal["tensorrt", "tensorrt-rtx"] | None, "if not said: the one that is installed"] = None
    device: Annotated[str, "cuda or cuda:N"] = "cuda"

    def find_device(self) -> tuple[Library, Any]:
        """Return the library and the torch device, or raise what is missing."""
        owner = type(self).__name__
        library = find_library(self.library, owner)
        return library, device_for(library, self.device, owner)

    def forward(self, batch: list[Any]) -> None:
        for item in batch:
            item["result"] = item["data"]
