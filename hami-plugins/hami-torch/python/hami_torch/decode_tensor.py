"""DecodeTensor: decode image files to tensors on the device; images that are too large are rejected before decoding."""

from __future__ import annotations

import io
from typing import Annotated, Any, Literal

import hami
import numpy as np
from hami.batching import fail_request
from PIL import Image, ImageOps

from hami_torch._jpeg_coding import nvjpeg_decodes
from hami_torch._nvjpeg import DecoderPool, Header, decoder_pool
from hami_torch._program import first_line
from hami_torch._tensor import TensorBackend, data_of
from hami_torch._torch import torch
from hami_torch._types import Batch, Request

_FORMATS = ("JPEG", "PNG", "WEBP", "BMP", "GIF", "TIFF")
_JPEG_START = b"\xff\xd8"
_TILE_WIDTH, _TILE_HEIGHT = 322, 323  # tags of TIFF
# How to turn an image of each EXIF orientation upright: whether to swap rows and columns, then which axes to flip.
_EXIF_TRANSFORMS = {
    2: (False, [-1]),
    3: (False, [-2, -1]),
    4: (False, [-2]),
    5: (True, []),
    6: (True, [-1]),
    7: (True, [-2, -1]),
    8: (True, [-2]),
}

_Files = list[tuple[Request, bytes]]


class DecodeTensor(TensorBackend):
    """Decode an image file (JPEG, PNG, WebP, BMP, GIF, TIFF) in `data` to a uint8 tensor 1 x C x H x W, or H x W x C.

    `data` is bytes or an object with the buffer protocol. C is 3, or 1 for gray. The request's keys `color` and
    `data_format` are set to the color format and the layout of the result. On a GPU, nvJPEG decodes the JPEG files of a
    batch together if its library is installed; all other files, such as JPEG files of RGB or CMYK, are decoded on the
    CPU and copied. The image is rotated as its EXIF orientation says.
    """

    max = "auto"
    lightweight = True  # on a CPU

    color: Annotated[Literal["rgb", "bgr", "gray"], "format of the result"] = "rgb"
    max_pixels: Annotated[int, "maximum of width x height; checked in the header, before decoding"] = 80_000_000
    layout: Annotated[Literal["nchw", "hwc"], hami.Alias("data_format"), "order of the axes of the result"] = "nchw"
    exif: Annotated[bool, "rotate the image as its EXIF orientation says"] = True
    chroma: Annotated[
        Literal["interpolate", "repeat"],
        "how nvJPEG enlarges subsampled chroma: interpolate, as on the CPU, or repeat its samples",
    ] = "interpolate"

    _decoders: DecoderPool | None = None

    def init(self, options: Any) -> None:
        super().init(options)
        if self.max_pixels < 1:
            raise hami.ConfigError(f'DecodeTensor: "max_pixels" must be at least 1, got {self.max_pixels}')
        if self.torch_device.type == "cuda":
            decoders = decoder_pool(self.torch_device, self.chroma == "interpolate")
            if decoders is not None:
                decoders.add_user()
                self._decoders = decoders

    def run(self, batch: Batch) -> None:
        files: _Files = self.read(batch, _bytes_of)
        if self._decoders is not None:
            files = self._decode_on_gpu(files, self._decoders)
        for item, encoded in files:
            try:
                image = self._decode_on_cpu(encoded)
            except hami.Error as error:
                fail_request(item, error)
            else:
                self._give_images([item], image[None])

    def _decode_on_gpu(self, files: _Files, decoders: DecoderPool) -> _Files:
        """Decode what nvJPEG can decode, fail requests whose image is too large, and return the remaining files."""
        jpegs = [
            index
            for index, (_, encoded) in enumerate(files)
            if encoded.startswith(_JPEG_START) and nvjpeg_decodes(encoded, self.chroma == "interpolate")
        ]
        if not jpegs:
            return files
        done: set[int] = set()
        readable: dict[int, tuple[bytes, Header]] = {}
        with decoders.borrow() as decoder:
            for index in jpegs:
                item, encoded = files[index]
                header = decoder.read_header(encoded)
                if header is None:
                    continue
                if header.width * header.height > self.max_pixels:
                    item.fail(self._size_error("JPEG", header.width, header.height))
                    done.add(index)
                else:
                    readable[index] = (encoded, header)
            groups = decoder.decode(readable, self.color)
        for indexes, images, orientation in groups:
            items = [files[index][0] for index in indexes]
            self._give_images(items, _turned_upright(images, orientation) if self.exif else images)
            done.update(indexes)
        return [file for index, file in enumerate(files) if index not in done]

    def _give_images(self, items: list[Request], images: torch.Tensor) -> None:
        """Set the results of requests to images N x C x H x W, one for each."""
        for item in items:
            item["color"] = self.color
            item["data_format"] = self.layout
        if self.layout == "nchw":
            self.give_rows(items, images, [1] * len(items))
            return
        for item, image in zip(items, images.permute(0, 2, 3, 1).contiguous(), strict=True):
            self.give(item, image)

    def close(self) -> None:
        if self._decoders is not None:
            self._decoders.remove_user()
            self._decoders = None

    def _size_error(self, format: str, width: int, height: int) -> hami.RequestError:
        if width * height == 0:
            return hami.RequestError(f"DecodeTensor: the {format} image has no pixels, its size is {width} x {height}")
        return hami.RequestError(
            f"DecodeTensor: the {format} image has {width} x {height} pixels, "
            f'more than "max_pixels" = {self.max_pixels}'
        )

    def _check_tiles(self, image: Any) -> None:
        """Reject a TIFF image with tiles of more than `max_pixels`: a tile is decoded whole, even for a small image."""
        width, height = (image.tag_v2.get(tag, 0) for tag in (_TILE_WIDTH, _TILE_HEIGHT))
        if isinstance(width, int) and isinstance(height, int) and width * height <= self.max_pixels:
            return
        raise hami.RequestError(
            f"DecodeTensor: the TIFF image has {image.width} x {image.height} pixels, but its tiles have "
            f'{width} x {height}, more than "max_pixels" = {self.max_pixels}'
        )

    def _decode_on_cpu(self, encoded: bytes) -> torch.Tensor:
        """Return a tensor C x H x W; in memory the channels of a pixel are adjacent."""
        image = self._open_image(encoded)
        format = image.format or "image"
        try:
            if self.exif:
                ImageOps.exif_transpose(image, in_place=True)
            if image.mode.startswith("I"):  # 16 bits; Pillow would clip all values above 255
                image = Image.fromarray((np.asarray(image) >> 8).astype(np.uint8))
            mode = "L" if self.color == "gray" else "RGB"
            pixels = np.array(image if image.mode == mode else image.convert(mode))
        except Exception as error:
            raise hami.RequestError(
                f"DecodeTensor: the {format} image of {len(encoded)} bytes cannot be decoded ({first_line(error)}); "
                "the file is truncated or damaged"
            ) from error
        if self.color == "gray":
            pixels = pixels[:, :, np.newaxis]
        elif self.color == "bgr":
            pixels = np.ascontiguousarray(pixels[:, :, ::-1])
        return torch.from_numpy(pixels).to(self.torch_device, non_blocking=True).permute(2, 0, 1)

    def _open_image(self, encoded: bytes) -> Image.Image:
        """Read the header of a file and reject what must not be decoded."""
        try:
            image = Image.open(io.BytesIO(encoded), formats=_FORMATS)
        except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
            raise hami.RequestError(
                f'DecodeTensor: the image exceeds the limit of Pillow, which is separate from "max_pixels": {error}; '
                "to raise it, set PIL.Image.MAX_IMAGE_PIXELS in the program"
            ) from None
        except Exception as error:  # Pillow's readers raise many types for broken headers
            raise hami.RequestError(
                f"DecodeTensor takes a JPEG, PNG, WebP, BMP, GIF or TIFF file, "
                f"got {len(encoded)} bytes that start with {encoded[:8].hex(' ')}"
            ) from error
        format = image.format or "image"
        if not 0 < image.width * image.height <= self.max_pixels:
            raise self._size_error(format, *image.size)
        if format == "TIFF":
            self._check_tiles(image)
        if image.mode == "F" or (image.mode == "I" and format != "PNG"):
            raise hami.RequestError(
                f"DecodeTensor takes images of 8 or 16 bits per channel, got a {format} file of 32 bits (Pillow mode "
                f"{image.mode}), whose value range is unknown; convert it to 8 or 16 bits"
            )
        return image


def _bytes_of(item: Request) -> bytes:
    """Return the file as bytes; other objects are copied, because they may change while they are decoded."""
    data = data_of(item, "DecodeTensor")
    if type(data) is bytes:
        encoded = data
    else:
        try:
            encoded = bytes(memoryview(data).cast("B"))
        except TypeError:
            raise hami.DataTypeError(
                f"DecodeTensor takes the bytes of an image file, got {type(data).__name__}"
            ) from None
    if not encoded:
        raise hami.RequestError("DecodeTensor takes the bytes of an image file, got 0 bytes")
    return encoded


def _turned_upright(images: torch.Tensor, orientation: int) -> torch.Tensor:
    swap, axes = _EXIF_TRANSFORMS.get(orientation, (False, []))
    if swap:
        images = images.transpose(-2, -1)
    return images.flip(axes) if axes else images
