"""Image backends for HAMi, based on OpenCV. Use them by name in a pipeline, for example S[DecodeMat, ResizeMat]."""

__all__: list[str] = []
