"""Checks of model files before an engine loads them: hami_model_check.onnx and hami_model_check.isolation."""

__all__: list[str] = []
