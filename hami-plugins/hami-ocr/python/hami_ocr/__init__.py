"""Reads the text of a page: backends, and the packaged pipeline `ocr` (ocr.toml beside this file)."""

__all__: list[str] = []
