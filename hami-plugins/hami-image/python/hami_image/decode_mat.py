"""DecodeMat: the bytes of an image file to a picture, refused before decoding if they are too large."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import cv2
import hami
import numpy as np

from hami_image._image_header import FORMATS, ImageHeader, read_header
from hami_image._mat import OneByOne, data_of

_FLAGS = {"bgr": cv2.IMREAD_COLOR_BGR, "rgb": cv2.IMREAD_COLOR_RGB, "gray": cv2.IMREAD_GRAYSCALE}


class DecodeMat(OneByOne):
    """Decode the bytes of an image file (JPEG, PNG, WebP, BMP, GIF, TIFF) to a uint8 picture H x W x 3.

    `data` is bytes or anything with a buffer (bytearray, memoryview, a uint8 array). The picture is turned upright
    as its EXIF orientation says, unless `exif = false`. Of an animation or a file of pages the first one is taken.
    With `alpha = true` a PNG or WebP that has an alpha channel gives H x W x 4; then EXIF is not applied.
    A gray PNG of which one value is transparent counts as one without.
    """

    color: Annotated[Literal["bgr", "rgb", "gray"], "order of the channels; gray gives H x W"] = "bgr"
    max_pixels: Annotated[int, "width x height above this is refused; decided from the header, before decoding"] = (
        100_000_000
    )
    exif: Annotated[bool, "turn the picture upright as its EXIF orientation says"] = True
    alpha: Annotated[bool, "keep the alpha channel of files that have one"] = False

    def init(self, options: Any) -> None:
        if self.max_pixels < 1:
            raise hami.ConfigError(f'DecodeMat: "max_pixels" is 1 or more, got {self.max_pixels}')
        if self.alpha and self.color == "gray":
            raise hami.ConfigError('DecodeMat: alpha = true goes with color "bgr" or "rgb", got "gray"')

    def apply(self, item: Any) -> np.ndarray:
        encoded = _bytes_of(data_of(item, "DecodeMat"))
        header = self._check(encoded)
        keep_alpha = self.alpha and header.alpha
        flags = cv2.IMREAD_UNCHANGED if keep_alpha else _FLAGS[self.color]
        if not self.exif and not keep_alpha:
            flags |= cv2.IMREAD_IGNORE_ORIENTATION
        try:
            mat = cv2.imdecode(np.frombuffer(encoded, np.uint8), flags)
        except cv2.error as error:
            raise _broken(header, encoded, error) from error
        if mat is None:
            raise _broken(header, encoded)
        self._check_decoded(header, mat)
        return self._finish_alpha(mat) if keep_alpha else mat

    def _check(self, encoded: memoryview) -> ImageHeader:
        """Decide from the header whether this may be decoded at all."""
        if not encoded.nbytes:
            raise hami.RequestError('DecodeMat: "data" is empty (0 bytes); give the bytes of an image file')
        header = read_header(encoded)
        if header is None:
            raise hami.RequestError(
                f'DecodeMat: "data" is not an image: {encoded.nbytes} bytes that start with '
                f"{bytes(encoded[:12])!r}; give the bytes of a {FORMATS} file"
            )
        if header.size is None:
            raise hami.RequestError(
                f'DecodeMat: "data" starts like a {header.format} file, but its {encoded.nbytes} bytes hold no clear '
                "size of a picture; the file is truncated or damaged"
            )
        width, height = header.size
        if not width or not height:
            raise hami.RequestError(f"DecodeMat: the {header.format} picture is {width} x {height}, it has no pixels")
        if width * height > self.max_pixels:
            raise hami.RequestError(
                f"DecodeMat: the {header.format} picture is {width} x {height} = {width * height:,} pixels, "
                f"more than max_pixels = {self.max_pixels:,}; make it smaller, or raise max_pixels"
            )
        tile_width, tile_height = header.tile
        if tile_width * tile_height > self.max_pixels:
            raise hami.RequestError(
                f"DecodeMat: the {header.format} picture is {width} x {height}, but a tile of it is {tile_width} x "
                f"{tile_height} = {tile_width * tile_height:,} pixels, more than max_pixels = {self.max_pixels:,}; "
                "make its tiles smaller, or raise max_pixels"
            )
        return header

    def _check_decoded(self, header: ImageHeader, mat: np.ndarray) -> None:
        """Refuse a picture larger than its header said: `max_pixels` was decided from that."""
        stored_width, stored_height = header.size or (0, 0)
        height, width = mat.shape[:2]
        if width * height > stored_width * stored_height:
            raise hami.RequestError(
                f"DecodeMat: the {header.format} picture came out as {width} x {height}, but its header says "
                f"{stored_width} x {stored_height}; the file is damaged, or made to get around max_pixels"
            )

    def _finish_alpha(self, mat: np.ndarray) -> np.ndarray:
        if mat.dtype == np.uint16:
            mat = (mat >> 8).astype(np.uint8)
        if self.color == "rgb":
            mat = cv2.cvtColor(mat, cv2.COLOR_BGRA2RGBA if mat.shape[2] == 4 else cv2.COLOR_BGR2RGB)
        return mat


def _bytes_of(data: Any) -> memoryview:
    try:
        view = memoryview(data)
        encoded = view.cast("B") if view.nbytes else memoryview(b"")  # an empty one of two axes cannot be cast
    except ValueError as error:  # a memoryview that was released
        raise hami.DataTypeError(
            f"DecodeMat takes the bytes of an image file, got a buffer that is not readable: {error}"
        ) from None
    except TypeError:
        if isinstance(data, (memoryview, np.ndarray)):
            raise hami.DataTypeError(
                "DecodeMat takes the bytes of an image file, got a buffer that is not contiguous"
            ) from None
        raise hami.DataTypeError(
            f"DecodeMat takes the bytes of an image file, as Path.read_bytes() gives, got {type(data).__name__}"
        ) from None
    if "O" in view.format:  # what lies there are addresses
        raise hami.DataTypeError("DecodeMat takes the bytes of an image file, got an array of Python objects")
    return encoded


def _broken(header: ImageHeader, encoded: memoryview, error: Exception | None = None) -> hami.RequestError:
    width, height = header.size or (0, 0)
    detail = f" ({str(error).strip()})" if error else ""
    cause = "the file is truncated or damaged"
    if header.format == "TIFF":  # the one format of which OpenCV does not read every kind
        cause += ", or its pixels are of a type that is not taken (floating-point numbers, say)"
    if "CV_IO_MAX_IMAGE" in detail:
        cause = (
            "OpenCV has limits of its own; OPENCV_IO_MAX_IMAGE_PIXELS, _WIDTH and _HEIGHT in the environment set them"
        )
    return hami.RequestError(
        f"DecodeMat: the {header.format} picture, {width} x {height} in {encoded.nbytes} bytes, "
        f"cannot be decoded{detail}; {cause}"
    )
