"""ONNX models and TensorRT engines as HAMi backends."""

__all__: list[str] = []
