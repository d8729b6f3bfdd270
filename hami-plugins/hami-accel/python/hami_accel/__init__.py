"""Models on accelerators: task slots, start and wait, priorities and preemption in user space."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hami_accel.device import Buffers, Call, Capabilities, Device, DeviceModel, LoadOptions, model_number
    from hami_accel.engines import engine_of
    from hami_accel.errors import CallAborted, DeviceError, InputError, ModelClosed, SlotError, SlotLost, WaitTimeout
    from hami_accel.model import AccelModel
    from hami_accel.platform import Platform
    from hami_accel.slots import Ticket
    from hami_accel.specs import Quantization, TensorSpec

__all__ = [
    "AccelModel",
    "Buffers",
    "Call",
    "CallAborted",
    "Capabilities",
    "Device",
    "DeviceError",
    "DeviceModel",
    "InputError",
    "LoadOptions",
    "ModelClosed",
    "Platform",
    "Quantization",
    "SlotError",
    "SlotLost",
    "TensorSpec",
    "Ticket",
    "WaitTimeout",
    "engine_of",
    "model_number",
]

_MODULES = {
    "AccelModel": "model",
    "Buffers": "device",
    "Call": "device",
    "CallAborted": "errors",
    "Capabilities": "device",
    "Device": "device",
    "DeviceError": "errors",
    "DeviceModel": "device",
    "InputError": "errors",
    "LoadOptions": "device",
    "ModelClosed": "errors",
    "Platform": "platform",
    "Quantization": "specs",
    "SlotError": "errors",
    "SlotLost": "errors",
    "TensorSpec": "specs",
    "Ticket": "slots",
    "WaitTimeout": "errors",
    "engine_of": "engines",
    "model_number": "device",
}


def __dir__() -> list[str]:
    return __all__


if not TYPE_CHECKING:

    def __getattr__(name):
        """Import a module when one of its names is used: plugins are found without numpy, and quickly."""
        if name not in _MODULES:
            raise AttributeError(f"module 'hami_accel' has no attribute {name!r}")
        from importlib import import_module

        value = getattr(import_module(f"hami_accel.{_MODULES[name]}"), name)
        globals()[name] = value
        return value
