"""Models on accelerators: task slots, start and wait, priorities and preemption in user space."""

from hami_accel.device import Buffers, Call, Capabilities, Device, DeviceModel, LoadOptions
from hami_accel.engine import engine_of
from hami_accel.errors import CallAborted, DeviceError, InputError, ModelClosed, SlotError, SlotLost, WaitTimeout
from hami_accel.model import AccelModel
from hami_accel.platform import Platform
from hami_accel.specs import Quantization, TensorSpec
from hami_accel.ticket import Ticket

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
]
