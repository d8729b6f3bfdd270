"""Files with the large arrays in results, for `hami run --output`."""

from __future__ import annotations

import struct
import sys
import zlib
from array import array as numbers
from pathlib import Path
from typing import Any

from hami import ConfigError, DataTypeError

# Codes of the module `struct`, which the buffer protocol uses, and their names in .npy files.
_NPY_TYPES = {
    "?": "|b1",
    **{code: f"<i{struct.calcsize(code)}" for code in "bhilq"},
    **{code: f"<u{struct.calcsize(code)}" for code in "BHILQ"},
    **{code: f"<f{struct.calcsize(code)}" for code in "efd"},
    "Zf": "<c8",
    "Zd": "<c16",
}
_SIGNATURES = {b"\xff\xd8\xff": ".jpg", b"\x89PNG": ".png", b"RIFF": ".webp", b"GIF8": ".gif", b"BM": ".bmp"}
_PNG_COLORS = {1: 0, 3: 2, 4: 6}  # channels: the color type of PNG


class ResultFiles:
    """Writes arrays and bytes into a folder, each to a file with the name of its place in the result."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._written: set[Path] = set()
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigError(f'--output takes a folder, cannot use "{folder}": {error.strerror}') from error

    def write(self, value: Any, name: str, *, swap_colors: bool = False) -> Path:
        """Write bytes or an array, and return the file; `swap_colors`: an image has blue first."""
        suffix, content = _of_bytes(value) if isinstance(value, bytes) else _of_array(value, swap_colors=swap_colors)
        path = self._folder / f"{name}{suffix}"
        number = 2
        while path in self._written:
            path = self._folder / f"{name}-{number}{suffix}"
            number += 1
        self._written.add(path)
        path.write_bytes(content)
        return path


def _of_bytes(value: bytes) -> tuple[str, bytes]:
    return next((each for start, each in _SIGNATURES.items() if value.startswith(start)), ".bin"), value


def _of_array(value: Any, *, swap_colors: bool) -> tuple[str, bytes]:
    code, shape, content = _content(value)
    image = _png(shape, content, swap_colors=swap_colors) if code == "B" else None
    return (".npy", _npy(code, shape, content)) if image is None else (".png", image)


def _content(value: Any) -> tuple[str, list[int], bytes]:
    """Return the buffer code, the shape, and the bytes in row-major order, of an array in any memory."""
    if hasattr(value, "detach"):  # torch: the buffer protocol needs an array of numpy
        value = value.detach().cpu()
        value = value.numpy() if str(value.dtype) != "torch.bfloat16" else value.float().numpy()
    try:
        view = memoryview(value)
    except (BufferError, TypeError):  # a type without a buffer code, such as bfloat16
        return "f", [int(size) for size in value.shape], _float32(value.tolist())
    if view.format not in _NPY_TYPES or sys.byteorder != "little":
        raise DataTypeError(f"cannot write an array of {value.dtype} to a file")
    return view.format, list(view.shape or ()), view.tobytes()


def _float32(nested: Any) -> bytes:
    flat = numbers("f")
    pending = [nested]
    while pending:
        value = pending.pop()
        if isinstance(value, list):
            pending += reversed(value)
        else:
            flat.append(value)
    return flat.tobytes()


def _npy(code: str, shape: list[int], content: bytes) -> bytes:
    """Return an .npy file, version 1.0 of the format."""
    header = repr({"descr": _NPY_TYPES[code], "fortran_order": False, "shape": tuple(shape)})
    header += " " * (-(len(header) + 11) % 64) + "\n"  # magic, version and length are 10 bytes
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode("latin-1") + content


def _png(shape: list[int], content: bytes, *, swap_colors: bool) -> bytes | None:
    """Return a PNG file of uint8 [H, W], [H, W, C] or [C, H, W] with C of 1, 3 or 4; None for another shape."""
    while len(shape) > 3 and shape[0] == 1:
        shape = shape[1:]
    if len(shape) == 2:
        shape = [*shape, 1]
    if len(shape) != 3 or 0 in shape:
        return None
    if shape[2] not in _PNG_COLORS:
        if shape[0] not in _PNG_COLORS:
            return None
        planes, size = shape[0], shape[1] * shape[2]
        whole = bytearray(len(content))
        for plane in range(planes):
            whole[plane::planes] = content[plane * size : (plane + 1) * size]
        content, shape = bytes(whole), [*shape[1:], planes]
    height, width, channels = shape
    if swap_colors and channels >= 3:
        swapped = bytearray(content)
        swapped[0::channels], swapped[2::channels] = content[2::channels], content[0::channels]
        content = bytes(swapped)
    rows = width * channels
    lines = b"".join(b"\0" + content[start : start + rows] for start in range(0, len(content), rows))

    def chunk(kind: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    head = struct.pack(">IIBBBBB", width, height, 8, _PNG_COLORS[channels], 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(lines)) + chunk(b"IEND", b"")
