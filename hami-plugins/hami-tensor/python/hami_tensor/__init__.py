"""Tensor backends for CPU memory, in the native library tensor.so of this folder, and the spellings of devices."""

from hami_tensor.device import Device

__all__ = ["Device"]
