"""ONNX models as HAMi backends; other plugins may use hami_onnx.session.open_session."""

__all__: list[str] = []
