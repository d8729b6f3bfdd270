"""ONNX models as HAMi backends. Other plugins may call hami_onnx.session.open_session."""

__all__: list[str] = []
