"""Arrays in results of `hami run`: small ones are printed, large ones are described or written to files."""

from __future__ import annotations

import re
import struct
import sys
import zlib
from array import array as numbers
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hami._cli.show import is_array, short
from hami._errors import ConfigError, DataTypeError

FIRST = 8  # values of a larger array that are printed

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


class ArrayWriter:
    """Replaces the arrays of results by what is printed for them; writes the large ones if there is a folder."""

    def __init__(self, max_values: int, folder: Path | None) -> None:
        """`max_values` is the largest number of elements that is printed, and of bytes that are not written."""
        self._max_values = max_values
        self._folder = folder
        self._written: set[Path] = set()
        if folder is not None:
            try:
                folder.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise ConfigError(f'--output takes a folder, cannot use "{folder}": {error.strerror}') from error

    def replace(self, request: dict[str, Any], label: str, *, json: bool) -> Any:
        """Return the result of a request without arrays; `label` names its input, and the files."""
        swap_colors = request.get("color") == "bgr"

        def replaced(value: Any, name: str) -> Any:
            if isinstance(value, (bytes, bytearray, memoryview)) and self._folder and len(value) > self._max_values:
                suffix = next(
                    (each for start, each in _SIGNATURES.items() if bytes(value[:4]).startswith(start)), ".bin"
                )
                return self._described({"bytes": len(value)}, f"{len(value)} bytes", name, suffix, bytes(value), json)
            if is_array(value):
                return self._array(value, name, json=json, swap_colors=swap_colors)
            return value

        return _map(request["result"], replaced, re.sub(r"[^\w.-]+", "_", Path(label).stem).strip("_-") or "result")

    def _array(self, value: Any, name: str, *, json: bool, swap_colors: bool) -> Any:
        shape = [int(size) for size in value.shape]
        count = 1
        for size in shape:
            count *= size
        if count <= self._max_values and hasattr(value, "tolist"):
            return value.tolist() if json else short(value.tolist())
        facts = {"dtype": str(value.dtype).removeprefix("torch."), "shape": shape}
        text = f"{facts['dtype']} array, shape {'x'.join(map(str, shape))}"
        if self._folder is None:
            first = _first(value)
            if json:
                return {**facts, "first": first}
            more = ", …" if len(first) < count else ""
            return f"{text}: {', '.join(map(short, first))}{more}" if first else text
        code, shape, content = _content(value)
        image = _png(shape, content, swap_colors=swap_colors) if code == "B" else None
        if image is not None:
            return self._described(facts, text, name, ".png", image, json)
        return self._described(facts, text, name, ".npy", _npy(code, shape, content), json)

    def _described(self, facts: dict[str, Any], text: str, name: str, suffix: str, content: bytes, json: bool) -> Any:
        assert self._folder is not None
        path = self._folder / f"{name}{suffix}"
        number = 2
        while path in self._written:
            path = self._folder / f"{name}-{number}{suffix}"
            number += 1
        self._written.add(path)
        path.write_bytes(content)
        return {**facts, "file": str(path)} if json else f"{text}: {path}"


def _first(value: Any) -> list[Any]:
    """Return the first values of an array in row-major order; none if its package cannot say them."""
    try:
        if hasattr(value, "reshape"):
            return list(value.reshape(-1)[:FIRST].tolist())
        view = memoryview(value)
        return view.cast("B").cast(view.format)[:FIRST].tolist()  # type: ignore[call-overload, no-any-return]
    except Exception:  # an array of a package that does it in another way
        return []


def _map(value: Any, function: Callable[[Any, str], Any], name: str) -> Any:
    """Apply a function to everything in a result that is not a dict, list or tuple; `name` grows with the keys."""
    if isinstance(value, dict):
        return {
            key: _map(item, function, f"{name}.{re.sub(r'[^A-Za-z0-9_-]+', '_', str(key))}")
            for key, item in value.items()
        }
    if isinstance(value, (list, tuple)):
        return [_map(item, function, f"{name}.{index}") for index, item in enumerate(value)]
    return function(value, name)


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
