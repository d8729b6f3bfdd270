"""Image backends for HAMi over OpenCV; use them by name in a pipeline, as in S[DecodeMat, ResizeMat]."""

__all__: list[str] = []
