"""The media type of bytes, by how they begin."""

from __future__ import annotations

BEGINNINGS: tuple[tuple[bytes, str], ...] = (
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
    (b"BM", "image/bmp"),
    (b"II*\x00", "image/tiff"),
    (b"MM\x00*", "image/tiff"),
    (b"%PDF-", "application/pdf"),
)


def media_type(data: bytes) -> str | None:
    """Return the type of a file that begins with `data`, of which 16 bytes are enough; None if it is not known."""
    if data[:4] == b"RIFF":
        return {b"WEBP": "image/webp", b"WAVE": "audio/wav"}.get(data[8:12])
    if data[4:12] == b"ftypavif":
        return "image/avif"
    return next((kind for beginning, kind in BEGINNINGS if data.startswith(beginning)), None)
