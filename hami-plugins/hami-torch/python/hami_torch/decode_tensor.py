"""DecodeTensor: the bytes of an image file to a picture on the device, refused before decoding if too large."""

from __future__ import annotations

import io
from typing import Annotated, Any, Literal

import hami
import numpy as np
from PIL import Image, ImageOps

from hami_torch import _nvjpeg
from hami_torch._jpeg_header import read_jpeg_header
from hami_torch._tensor import TensorBackend, data_of
from hami_torch._torch import torch

_FORMATS = ("JPEG", "PNG", "WEBP", "BMP", "GIF", "TIFF")
# How a picture stored in an EXIF orientation is turned upright: swap rows and columns first, then flip these axes.
_UPRIGHT = {
    2: (False, [2]),
    3: (False, [1, 2]),
    4: (False, [1]),
    5: (True, []),
    6: (True, [2]),
    7: (True, [1, 2]),
    8: (True, [1]),
}

_Jpeg = tuple[Any, bytes | memoryview, int]  # a request, its file, and how that is stored


class DecodeTensor(TensorBackend):
    """Decode the bytes of an image file (JPEG, PNG, WebP, BMP, GIF, TIFF) to a uint8 picture 1 x C x H x W.

    On a GPU JPEG files are decoded by nvJPEG where torchvision is installed, a batch in one call; all else is decoded
    on the CPU and copied there. `data` is bytes or anything with a buffer. Sets the request's key `color` to what the
    result has. The picture is turned upright as its EXIF orientation says, unless `exif = false`.
    """

    color: Annotated[Literal["rgb", "bgr", "gray"], "order of the channels; gray has one"] = "rgb"
    max_pixels: Annotated[int, "width x height above this is refused; decided from the header, before decoding"] = (
        80_000_000
    )
    exif: Annotated[bool, "turn the picture upright as its EXIF orientation says"] = True

    _decoder: _nvjpeg.Decoder | None = None

    def init(self, options: Any) -> None:
        super().init(options)
        if self.max_pixels < 1:
            raise hami.ConfigError(f'DecodeTensor: "max_pixels" is 1 or more, got {self.max_pixels}')
        if self.torch_device.type == "cuda" and _nvjpeg.torchvision_version() is not None:
            self._decoder = _nvjpeg.Decoder(self.torch_device)

    def run(self, batch: list[Any]) -> None:
        on_gpu: list[_Jpeg] = []
        for item in batch:
            try:
                encoded = _bytes_of(item)
                header = read_jpeg_header(encoded)
                if header is not None:
                    width, height, channels, orientation = header
                    if not 0 < width * height <= self.max_pixels:
                        self._refuse_size("JPEG", width, height)
                    if self._decoder is not None and channels in (1, 3):
                        on_gpu.append((item, encoded, orientation))
                        continue
                self._answer(item, self._decode_on_cpu(encoded)[None])
            except hami.Error as error:
                item.fail(error)
        if self._decoder is not None and on_gpu:
            self._decode_on_gpu(on_gpu, self._decoder)

    def _decode_on_gpu(self, files: list[_Jpeg], decoder: _nvjpeg.Decoder) -> None:
        pictures = decoder.decode([encoded for _, encoded, _ in files], gray=self.color == "gray")
        by_shape: dict[torch.Size, tuple[list[Any], list[torch.Tensor]]] = {}
        for (item, encoded, orientation), picture in zip(files, pictures, strict=True):
            if isinstance(picture, Exception):
                item.fail(_broken("JPEG", encoded, picture))
                continue
            if orientation != 1 and self.exif:
                picture = _upright(picture, orientation)
            items, group = by_shape.setdefault(picture.shape, ([], []))
            items.append(item)
            group.append(picture)
        for items, group in by_shape.values():
            whole = torch.stack(group) if len(group) > 1 else group[0].unsqueeze(0)
            if self.color == "bgr":
                whole = whole.flip(1)
            for item in items:
                item["color"] = self.color
            self.give_rows(items, whole, [1] * len(items))

    def close(self) -> None:
        if self._decoder is not None:
            self._decoder.close()
            self._decoder = None

    def _answer(self, item: Any, picture: torch.Tensor) -> None:
        item["color"] = self.color
        self.give(item, picture)

    def _refuse_size(self, name: str, width: int, height: int) -> None:
        if width * height == 0:
            raise hami.RequestError(f"DecodeTensor: the {name} picture has no pixels, it is {width} x {height}")
        raise hami.RequestError(
            f"DecodeTensor: the {name} picture has {width} x {height} pixels, "
            f'more than "max_pixels" = {self.max_pixels}'
        )

    def _decode_on_cpu(self, encoded: bytes | memoryview) -> torch.Tensor:
        """Return C x H x W; in memory the channels of a pixel lie side by side."""
        try:
            picture = Image.open(io.BytesIO(encoded), formats=_FORMATS)
        except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
            raise hami.RequestError(f"DecodeTensor: the picture is too large: {error}") from None
        except Exception as error:  # Pillow's readers raise what they like on broken headers
            start = bytes(encoded[:8]).hex(" ")
            raise hami.RequestError(
                f"DecodeTensor takes a JPEG, PNG, WebP, BMP, GIF or TIFF file, "
                f"got {len(encoded)} bytes that start with {start}"
            ) from error
        name = picture.format or "image"
        if not 0 < picture.width * picture.height <= self.max_pixels:
            self._refuse_size(name, *picture.size)
        try:
            if self.exif:
                ImageOps.exif_transpose(picture, in_place=True)
            mode = "L" if self.color == "gray" else "RGB"
            pixels = np.array(picture if picture.mode == mode else picture.convert(mode))
        except Exception as error:
            raise _broken(name, encoded, error) from error
        if self.color == "gray":
            pixels = pixels[:, :, np.newaxis]
        elif self.color == "bgr":
            pixels = np.ascontiguousarray(pixels[:, :, ::-1])
        return torch.from_numpy(pixels).to(self.torch_device, non_blocking=True).permute(2, 0, 1)


def _bytes_of(item: Any) -> bytes | memoryview:
    data = data_of(item, "DecodeTensor")
    if type(data) is not bytes:
        try:
            data = memoryview(data).cast("B")
        except TypeError:
            raise hami.DataTypeError(
                f"DecodeTensor takes the bytes of an image file, got {type(data).__name__}"
            ) from None
    if not len(data):
        raise hami.RequestError("DecodeTensor takes the bytes of an image file, got none")
    return data  # type: ignore[no-any-return]


def _upright(picture: torch.Tensor, orientation: int) -> torch.Tensor:
    swap, axes = _UPRIGHT.get(orientation, (False, []))
    if swap:
        picture = picture.transpose(1, 2)
    return picture.flip(axes) if axes else picture


def _broken(name: str, encoded: bytes | memoryview, error: Exception) -> hami.RequestError:
    reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
    return hami.RequestError(
        f"DecodeTensor: the {name} picture in {len(encoded)} bytes cannot be decoded ({reason}); "
        "the file is truncated or damaged"
    )
