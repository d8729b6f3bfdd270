"""ONNX and OpenVINO models as a HAMi backend. The native library openvino_tensor.so in this folder runs them."""

__all__: list[str] = []
