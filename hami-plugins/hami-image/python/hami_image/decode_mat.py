"""DecodeMat: decodes an image file, and rejects images that are too large before decoding them."""

from __future__ import annotations

import struct
from typing import Annotated, Any, Literal

import cv2
import hami
import numpy as np
from numpy.typing import NDArray

from hami_image._box_file import transformed
from hami_image._file_copies import (
    EndsEarlyError,
    complete_jpeg,
    decode_deep_png,
    png_without_animation,
    tiff_with_stored_pixels,
    webp_first_image,
)
from hami_image._image_backend import ImageBackend
from hami_image._image_header import FORMATS, ImageHeader, read_header
from hami_image._inputs import data_of

_FLAGS = {"bgr": cv2.IMREAD_COLOR_BGR, "rgb": cv2.IMREAD_COLOR_RGB, "gray": cv2.IMREAD_GRAYSCALE}


class DecodeMat(ImageBackend):
    """Decode an image file (JPEG, PNG, WebP, BMP, GIF, TIFF, AVIF or JPEG 2000).

    data: bytes, or another bytes-like object (bytearray, memoryview, uint8 array)
    result: image H x W x 3, uint8; H x W with `color` = gray; H x W x 4 if `alpha` is true and the file has alpha
    color: written to the request, the channel order of the result

    The size of the image is read from the header and checked against `max_pixels` before decoding, and so is the memory
    that decoding needs against `max_memory`. A picture whose data
    end early is an error. Of an animation or a file with several pages, the first image is decoded. With `alpha` =
    true, the EXIF orientation of a file with an alpha channel is not applied. A gray PNG file with a transparent value
    (tRNS) counts as a file without alpha.
    """

    color: Annotated[Literal["bgr", "rgb", "gray"], "channel order of the result"] = "bgr"
    max_pixels: Annotated[int, "largest accepted width x height; checked before decoding"] = 100_000_000
    max_memory: Annotated[int, "most bytes of memory for decoding a file, with the result; checked before decoding"] = (
        800_000_000
    )
    max_scans: Annotated[int, "largest accepted number of scans of a JPEG file; each costs time for all pixels"] = 50
    exif: Annotated[bool, "rotate the image as its EXIF orientation requires"] = True
    alpha: Annotated[bool, "keep the alpha channel of PNG and WebP files that have one"] = False

    def init(self, options: Any) -> None:
        for name, limit in (
            ("max_pixels", self.max_pixels),
            ("max_memory", self.max_memory),
            ("max_scans", self.max_scans),
        ):
            if limit < 1:
                raise hami.ConfigError(f'DecodeMat: "{name}" must be at least 1, got {limit}')
        if self.alpha and self.color == "gray":
            raise hami.ConfigError('DecodeMat: "alpha" = true requires "color" = bgr or rgb, got gray')

    def apply(self, item: Any) -> NDArray[np.uint8]:
        encoded = _bytes_of(data_of(item, "DecodeMat"))
        header = self._check_header(encoded)
        keep_alpha = self.alpha and header.alpha
        flags: int = cv2.IMREAD_UNCHANGED if keep_alpha else _FLAGS[self.color]
        if not self.exif and not keep_alpha:
            flags |= cv2.IMREAD_IGNORE_ORIENTATION
        try:
            image = self._decode(encoded, flags, header)
        except cv2.error as error:
            raise _decode_error(header, encoded, error) from error
        except (EndsEarlyError, struct.error):  # the second: it names a place outside of it
            raise _decode_error(header, encoded) from None
        if image is None:
            raise _decode_error(header, encoded)
        _check_decoded_size(header, image)
        if self.exif and header.transforms:
            image = transformed(image, header.transforms)
        item["color"] = self.color
        if keep_alpha and self.color == "rgb":
            flipped: NDArray[Any] = cv2.cvtColor(
                image, cv2.COLOR_BGRA2RGBA if image.shape[2] == 4 else cv2.COLOR_BGR2RGB
            )
            return flipped
        return image

    def _decode(self, encoded: memoryview, flags: int, header: ImageHeader) -> NDArray[Any] | None:
        """Decode a file, but only if it is complete. Few files need memory for more than two images."""
        if header.decode:
            return header.decode(encoded, flags)
        complete: bytes | memoryview = encoded
        file = header.file
        if file is None:
            pass
        elif header.format == "JPEG":
            try:
                complete = complete_jpeg(encoded, file, self.max_scans)
            except ValueError as error:
                raise _decode_error(header, encoded, reason=str(error)) from None
        elif header.format == "PNG":
            complete = png_without_animation(encoded, file)
            if flags == cv2.IMREAD_UNCHANGED and file.is_deep:
                return decode_deep_png(np.frombuffer(complete, np.uint8), file)
        elif header.format == "TIFF":
            complete = tiff_with_stored_pixels(encoded, file, turn=self.exif)
        elif file.image_end:  # of a WebP animation
            first = memoryview(webp_first_image(encoded, file))
            inner = read_header(first)
            if inner and inner.size == header.size:  # else the image may be larger than max_pixels
                complete = first
        return cv2.imdecode(np.frombuffer(complete, np.uint8), flags)

    def _check_header(self, encoded: memoryview) -> ImageHeader:
        """Return the header of a file that may be decoded. Raises RequestError for all other files."""
        if not encoded.nbytes:
            raise hami.RequestError('DecodeMat: "data" is empty (0 bytes); give the bytes of an image file')
        header = read_header(encoded, self.max_scans)
        if header is None:
            raise hami.RequestError(
                f'DecodeMat: "data" is not an image file: {encoded.nbytes} bytes that start with '
                f"{bytes(encoded[:12])!r}; give the bytes of a {FORMATS} file"
            )
        if header.problem:
            raise hami.RequestError(f"DecodeMat: the {header.format} file {header.problem}")
        if header.size is None:
            raise hami.RequestError(
                f'DecodeMat: "data" starts like a {header.format} file, but its {encoded.nbytes} bytes contain no '
                "unambiguous image size; the file is truncated or damaged"
            )
        width, height = header.size
        if not width or not height:
            raise hami.RequestError(f"DecodeMat: the {header.format} image is {width} x {height} and has no pixels")
        if width * height > self.max_pixels:
            raise hami.RequestError(
                f"DecodeMat: the {header.format} image is {width} x {height} = {width * height:,} pixels, "
                f"more than max_pixels = {self.max_pixels:,}; give a smaller image or raise max_pixels"
            )
        tile_width, tile_height = header.tile
        if tile_width * tile_height > self.max_pixels:
            raise hami.RequestError(
                f"DecodeMat: the {header.format} image is {width} x {height}, but its tiles are {tile_width} x "
                f"{tile_height} = {tile_width * tile_height:,} pixels, more than max_pixels = {self.max_pixels:,}; "
                "save the file with smaller tiles or raise max_pixels"
            )
        if encoded.nbytes < header.min_bytes:
            raise _decode_error(header, encoded)
        self._check_memory(header)
        return header

    def _check_memory(self, header: ImageHeader) -> None:
        needed = header.memory(channels=4 if self.alpha and header.alpha else 1 if self.color == "gray" else 3)
        if needed > self.max_memory:
            width, height = header.size or (0, 0)
            raise hami.RequestError(
                f"DecodeMat: decoding the {header.format} image, {width} x {height}, needs {needed:,} bytes of memory, "
                f"more than max_memory = {self.max_memory:,}; give a smaller image, save the file in another format, "
                "or raise max_memory"
            )


def _check_decoded_size(header: ImageHeader, image: NDArray[Any]) -> None:
    """Reject an image that is larger than its header says, because `max_pixels` was checked against the header."""
    stored_width, stored_height = header.size or (0, 0)
    height, width = image.shape[:2]
    if width * height > stored_width * stored_height:
        raise hami.RequestError(
            f"DecodeMat: the decoded {header.format} image is {width} x {height}, but its header says "
            f"{stored_width} x {stored_height}; the file is damaged or was made to bypass max_pixels"
        )


def _bytes_of(data: Any) -> memoryview:
    """Return the bytes of a bytes-like object without a copy."""
    try:
        view = memoryview(data)
        encoded = view.cast("B") if view.nbytes else memoryview(b"")  # an empty view of two axes cannot be cast
    except ValueError as error:  # a memoryview that was released
        raise _not_bytes(f"a buffer that cannot be read: {error}") from None
    except TypeError:
        if isinstance(data, (memoryview, np.ndarray)):
            raise _not_bytes("a buffer that is not contiguous") from None
        raise _not_bytes(type(data).__name__) from None
    if "O" in view.format:  # the buffer holds addresses of Python objects
        raise _not_bytes("an array of Python objects")
    return encoded


def _not_bytes(given: str) -> hami.DataTypeError:
    return hami.DataTypeError(
        f'DecodeMat: "data" must be the bytes of an image file, as Path.read_bytes() returns, got {given}'
    )


def _decode_error(
    header: ImageHeader, encoded: memoryview, error: Exception | None = None, reason: str = ""
) -> hami.RequestError:
    width, height = header.size or (0, 0)
    detail = f" ({str(error).strip()})" if error else ""
    cause = "the file is truncated or damaged"
    if header.format == "TIFF":  # OpenCV decodes all variants of the other formats
        cause += ", or its pixel type is not supported (for example, floating point)"
    if "CV_IO_MAX_IMAGE" in detail:
        cause = (
            "it is above a limit of OpenCV; raise OPENCV_IO_MAX_IMAGE_PIXELS, OPENCV_IO_MAX_IMAGE_WIDTH or "
            "OPENCV_IO_MAX_IMAGE_HEIGHT in the environment"
        )
    reason = reason or f"cannot be decoded{detail}; {cause}"
    return hami.RequestError(
        f"DecodeMat: the {header.format} image, {width} x {height} in {encoded.nbytes} bytes, {reason}"
    )
