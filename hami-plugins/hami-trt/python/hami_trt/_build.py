"""From an ONNX model to a serialized engine."""
