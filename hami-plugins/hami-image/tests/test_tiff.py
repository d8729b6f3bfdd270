"""TIFF files: the stored colours beside an alpha channel, and the orientation, whichever form the file has."""

from __future__ import annotations

import struct

import cv2
import hami
import numpy as np
import pytest

SHORT, LONG, LONG8 = 3, 4, 16


def tiff(
    image: np.ndarray, extra: int | None = None, orientation: int = 1, order: str = "<", big: bool = False
) -> bytes:
    """An uncompressed TIFF file of an RGB or RGBA image, with a kind of alpha channel and an orientation."""
    height, width, channels = image.shape
    offset, entry = ("Q", "HHQ8s") if big else ("I", "HHI4s")
    head = (b"II" if order == "<" else b"MM") + struct.pack(order + "H", 43 if big else 42)
    head += struct.pack(order + "HH", 8, 0) if big else b""
    start = len(head) + struct.calcsize(order + offset)
    fields = [(256, SHORT, [width]), (257, SHORT, [height]), (258, SHORT, [8] * channels), (259, SHORT, [1])]
    fields += [(262, SHORT, [2]), (273, LONG, [0]), (274, SHORT, [orientation]), (277, SHORT, [channels])]
    fields += [(278, SHORT, [height]), (279, LONG, [image.nbytes])]
    fields += [(338, SHORT, [extra])] if extra is not None else []
    size = struct.calcsize(order + ("Q" if big else "H")) + len(fields) * struct.calcsize(order + entry)
    more = start + size + struct.calcsize(order + offset)
    bits = struct.pack(f"{order}{channels}H", *[8] * channels)
    pixels = more + len(bits)
    body = struct.pack(order + ("Q" if big else "H"), len(fields))
    for tag, kind, values in fields:
        values = [pixels] if tag == 273 else values
        packed = struct.pack(f"{order}{len(values)}{'H' if kind == SHORT else 'I'}", *values)
        if len(packed) > (8 if big else 4):
            packed = struct.pack(order + offset, more)
        body += struct.pack(order + entry, tag, kind, len(values), packed)
    return head + struct.pack(order + offset, start) + body + struct.pack(order + offset, 0) + bits + image.tobytes()


def picture(channels: int) -> np.ndarray:
    image = np.arange(5 * 7 * channels, dtype=np.uint8).reshape(5, 7, channels) + 60
    if channels == 4:
        image[:, :, 3] = np.linspace(0, 255, 35).astype(np.uint8).reshape(5, 7)
    return image


def turned(image: np.ndarray, orientation: int) -> np.ndarray:
    """What a viewer shows, by the table of the TIFF specification."""
    image = image.transpose(1, 0, 2) if orientation >= 5 else image
    flips = {2: (1,), 3: (0, 1), 4: (0,), 6: (1,), 7: (0, 1), 8: (0,)}.get(orientation, ())
    return np.flip(image, flips)


@pytest.mark.parametrize("form", [("<", False), (">", False), ("<", True), (">", True)])
@pytest.mark.parametrize("extra", [0, 1, 2])
def test_colours_beside_an_alpha_channel_are_those_that_are_stored(run, form, extra):
    image = picture(4)
    data = tiff(image, extra, order=form[0], big=form[1])
    assert np.array_equal(run("DecodeMat", {"color": "rgb"}, data=data)["result"], image[:, :, :3])
    assert np.array_equal(run("DecodeMat", data=data)["result"], image[:, :, 2::-1])
    gray = run("DecodeMat", {"color": "gray"}, data=data)["result"]
    assert np.abs(gray.astype(int) - cv2.cvtColor(image[:, :, :3].copy(), cv2.COLOR_RGB2GRAY)).max() <= 1


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("extra", [None, 2])
@pytest.mark.parametrize("order", ["<", ">"])
def test_the_orientation_is_applied_only_where_it_is_asked_for(run, orientation, extra, order):
    image = picture(3 if extra is None else 4)
    data = tiff(image, extra, orientation, order)
    stored = run("DecodeMat", {"color": "rgb", "exif": False}, data=data)["result"]
    assert np.array_equal(stored, image[:, :, :3])
    shown = run("DecodeMat", {"color": "rgb"}, data=data)["result"]
    assert np.array_equal(shown, turned(image[:, :, :3], orientation))


@pytest.mark.parametrize("cut", [0.3, 0.6, 0.9])
def test_a_file_that_ends_early_is_an_error(run, cut):
    data = tiff(picture(4), 2, 6)
    with pytest.raises(hami.RequestError, match="TIFF"):
        run("DecodeMat", {"exif": False}, data=data[: int(len(data) * cut)])
