"""Text recognition (OCR) for pages: the backends, and the packaged pipeline `ocr` (ocr.toml in this folder)."""

__all__: list[str] = []
