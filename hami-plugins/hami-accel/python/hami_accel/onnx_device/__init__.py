"""The device `onnx`: ONNX models on ONNX Runtime's CPU provider, cut into function-calls."""
