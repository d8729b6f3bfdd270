"""The base class of the backends that open an engine."""

from __future__ import annotations

import ctypes
import os
from typing import Annotated, Any, Literal

import hami
from hami_tensor import Device

from hami_trt._gpu import find_device
from hami_trt._tensorrt import Library, find_library


class EngineLoader(hami.Backend):
    """Base of the backends that put an engine into the options of their instance. Requests pass unchanged."""

    thread = "concurrent"

    library: Annotated[Literal["tensorrt", "tensorrt-rtx"] | None, "library to use; default: the installed one"] = None
    device: Annotated[str, "cuda or cuda:N"] = "cuda"
    plugin_library: Annotated[hami.types.FilePath | None, "library whose layers register themselves"] = None

    def find_library_and_device(self) -> tuple[Library, Device]:
        """Return the library and the device that the parameters name, with the layers of `plugin_library`.

        Raises:
            hami.ConfigError: one of them is missing, or the library does not run on the device; a library of layers is
                not allowed or cannot be loaded.
        """
        owner = type(self).__name__
        layers = os.path.abspath(self.plugin_library) if self.plugin_library else ""  # a bare name is searched for
        if layers:
            hami.native.check_library(layers, f"plugin_library of {owner}")
        library = find_library(self.library, owner)
        if layers:
            try:
                ctypes.CDLL(layers)  # stays loaded; its initialisation registers the layers
            except OSError as error:
                raise hami.ConfigError(f"{owner}: plugin_library cannot be loaded: {error}") from None
        return library, find_device(library, self.device, owner)

    def forward(self, batch: list[Any]) -> None:
        for item in batch:
            item["result"] = item["data"]
