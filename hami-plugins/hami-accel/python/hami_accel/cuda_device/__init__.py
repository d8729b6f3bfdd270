"""The device `cuda`: work of PyTorch on a GPU of NVIDIA. PyTorch is imported when the device is created."""
