"""Tensor backends for CPU memory. The native library tensor.so in this folder contains them."""

__all__: list[str] = []
