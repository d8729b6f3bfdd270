"""find_fixed_ones: where an ONNX file fixes the number of rows at 1, so that an engine can open it with any number."""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterator, Mapping

from hami_model_check._protobuf import Reader

FIXED_ONE = b"\x08\x01"  # a dimension of the length 1: field 1 of the message Dimension
FREE = b"\x1a\x00"  # a dimension without a length: an empty denotation, which has as many bytes

_MOST_FIELDS = 20_000_000  # read_onnx has its own, smaller limit and runs before
_GRAPH = 7
_INPUT, _OUTPUT, _DECLARED = 11, 12, 13  # fields of the message GraphProto


def find_fixed_ones(path: str | os.PathLike[str], input_axes: Mapping[str, int | None]) -> list[int]:
    """Return the offsets in a file at which `FREE` in place of `FIXED_ONE` lets inputs take any number of rows.

    Every length of 1 that the file declares for an output or an intermediate tensor is among them: it may be the
    number of rows, and an engine infers a length that is not declared.

    Args:
        path: a file that `hami_model_check.onnx.read_onnx` has accepted.
        input_axes: the axis of the rows by input; None: the input has none, and stays as it is.

    Returns:
        Offsets; empty if an axis of the rows is not 1, or is written in another form.

    Raises:
        ValueError: the file is damaged.
        OSError: the file cannot be read.
    """
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        reader = Reader(data, _MOST_FIELDS)
        freed: list[int] = []
        wanted = {name for name, axis in input_axes.items() if axis is not None}
        for number, begin, end in reader.fields(0, len(data)):
            for kind, start, stop in reader.fields(begin, end) if number == _GRAPH else ():
                if kind not in (_INPUT, _OUTPUT, _DECLARED):
                    continue
                name, lengths = _port(reader, start, stop)
                ones = {axis: at for axis, (at, last) in enumerate(lengths) if data[at:last] == FIXED_ONE}
                if kind != _INPUT:
                    freed += ones.values()
                elif name in wanted:
                    wanted.remove(name)
                    axis = input_axes[name]
                    if axis not in ones:
                        return []
                    freed.append(ones[axis])
    return sorted(freed) if freed and not wanted else []


def _port(reader: Reader, begin: int, end: int) -> tuple[str, list[tuple[int, int]]]:
    """Return the name of a value, and where the dimensions of its tensor are."""
    name = ""
    lengths: list[tuple[int, int]] = []
    for number, start, stop in reader.fields(begin, end):
        if number == 1:
            name = bytes(reader.data[start:stop]).decode("utf-8", "backslashreplace")
        elif number == 2:
            shapes = (each for kind in _inside(reader, start, stop, 1) for each in _inside(reader, *kind, 2))
            lengths = [each for shape in shapes for each in _inside(reader, *shape, 1)]
    return name, lengths


def _inside(reader: Reader, begin: int, end: int, wanted: int) -> Iterator[tuple[int, int]]:
    return ((start, stop) for number, start, stop in reader.fields(begin, end) if number == wanted)
