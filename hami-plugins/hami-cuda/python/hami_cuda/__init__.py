"""Image and tensor backends on NVIDIA GPUs. The native library cuda_tensors.so in this folder contains them."""

__all__: list[str] = []
