"""DecodeTensor: the bytes of an image file to a picture on the device, refused before decoding if too large."""

from __future__ import annotations

import io
from typing import Annotated, Any, Literal

import hami
import numpy as np
from PIL import Image, ImageOps

from hami_torch._nvjpeg import Decoders, Header, decoders_of
from hami_torch._tensor import TensorBackend, data_of, without_frames
from hami_torch._torch import torch

_FORMATS = ("JPEG", "PNG", "WEBP", "BMP", "GIF", "TIFF")
_TILE_WIDTH, _TILE_HEIGHT = 322, 323  # tags of TIFF
# How a picture stored in an EXIF orientation is turned upright: swap rows and columns first, then flip these axes.
_UPRIGHT = {
    2: (False, [-1]),
    3: (False, [-2, -1]),
    4: (False, [-2]),
    5: (True, []),
    6: (True, [-1]),
    7: (True, [-2, -1]),
    8: (True, [-2]),
}

_Files = list[tuple[Any, bytes]]  # requests with their files


class DecodeTensor(TensorBackend):
    """Decode the bytes of an image file (JPEG, PNG, WebP, BMP, GIF, TIFF) to a uint8 picture 1 x C x H x W.

    On a GPU JPEG files are decoded by nvJPEG where its library is found, a batch in one call; all else is decoded on
    the CPU and copied there. `data` is bytes or anything with a buffer. Sets the request's key `color` to what the
    result has. The picture is turned upright as its EXIF orientation says, unless `exif = false`.
    """

    color: Annotated[Literal["rgb", "bgr", "gray"], "order of the channels; gray has one"] = "rgb"
    max_pixels: Annotated[int, "width x height above this is refused; decided from the header, before decoding"] = (
        80_000_000
    )
    exif: Annotated[bool, "turn the picture upright as its EXIF orientation says"] = True

    _decoders: Decoders | None = None

    def init(self, options: Any) -> None:
        super().init(options)
        if self.max_pixels < 1:
            raise hami.ConfigError(f'DecodeTensor: "max_pixels" is 1 or more, got {self.max_pixels}')
        if self.torch_device.type == "cuda":
            decoders = decoders_of(self.torch_device)
            if decoders is not None:
                decoders.join()
                self._decoders = decoders

    def run(self, batch: list[Any]) -> None:
        files = self.read(batch, _bytes_of)
        if self._decoders is not None:
            files = self._decode_on_gpu(files, self._decoders)
        for item, encoded in files:
            try:
                picture = self._decode_on_cpu(encoded)[None]
            except hami.Error as error:
                item.fail(without_frames(error))
            else:
                item["color"] = self.color
                self.give(item, picture)

    def _decode_on_gpu(self, files: _Files, decoders: Decoders) -> _Files:
        """Decode what nvJPEG can decode, refuse what is too large, and return the other files."""
        jpegs = [at for at, (_, encoded) in enumerate(files) if encoded.startswith(b"\xff\xd8")]
        if not jpegs:
            return files
        done: set[int] = set()
        readable: dict[int, tuple[bytes, Header]] = {}
        with decoders.lend() as decoder:
            for at in jpegs:
                item, encoded = files[at]
                header = decoder.read_header(encoded)
                if header is None:
                    continue
                if header.width * header.height > self.max_pixels:
                    item.fail(self._too_large("JPEG", header.width, header.height))
                    done.add(at)
                else:
                    readable[at] = (encoded, header)
            groups = decoder.decode(readable, self.color)
        for members, pictures, orientation in groups:
            items = [files[at][0] for at in members]
            for item in items:
                item["color"] = self.color
            self.give_rows(items, _upright(pictures, orientation) if self.exif else pictures, [1] * len(items))
            done.update(members)
        return [file for at, file in enumerate(files) if at not in done]

    def close(self) -> None:
        if self._decoders is not None:
            self._decoders.leave()
            self._decoders = None

    def _too_large(self, name: str, width: int, height: int) -> hami.RequestError:
        if width * height == 0:
            return hami.RequestError(f"DecodeTensor: the {name} picture has no pixels, it is {width} x {height}")
        return hami.RequestError(
            f"DecodeTensor: the {name} picture has {width} x {height} pixels, "
            f'more than "max_pixels" = {self.max_pixels}'
        )

    def _check_tiles(self, picture: Any) -> None:
        """Refuse tiles of more than `max_pixels`: one is decoded as a whole, however small the picture."""
        width, height = (picture.tag_v2.get(tag, 0) for tag in (_TILE_WIDTH, _TILE_HEIGHT))
        if isinstance(width, int) and isinstance(height, int) and width * height <= self.max_pixels:
            return
        raise hami.RequestError(
            f"DecodeTensor: the TIFF picture has {picture.width} x {picture.height} pixels, but a tile of it has "
            f'{width} x {height}, more than "max_pixels" = {self.max_pixels}'
        )

    def _decode_on_cpu(self, encoded: bytes) -> torch.Tensor:
        """Return C x H x W; in memory the channels of a pixel lie side by side."""
        try:
            picture = Image.open(io.BytesIO(encoded), formats=_FORMATS)
        except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
            raise hami.RequestError(
                f'DecodeTensor: the picture is too large for Pillow, whatever "max_pixels" says: {error}; '
                "it takes more where the program sets PIL.Image.MAX_IMAGE_PIXELS"
            ) from None
        except Exception as error:  # Pillow's readers raise what they like on broken headers
            start = encoded[:8].hex(" ")
            raise hami.RequestError(
                f"DecodeTensor takes a JPEG, PNG, WebP, BMP, GIF or TIFF file, "
                f"got {len(encoded)} bytes that start with {start}"
            ) from error
        name = picture.format or "image"
        if not 0 < picture.width * picture.height <= self.max_pixels:
            raise self._too_large(name, *picture.size)
        if name == "TIFF":
            self._check_tiles(picture)
        if picture.mode == "F" or (picture.mode == "I" and name != "PNG"):
            raise hami.RequestError(
                f"DecodeTensor takes pictures of 8 or 16 bits, got a {name} file of 32 bits a pixel "
                f"(Pillow's mode {picture.mode}), of which nobody knows what is white; store it in 8 or 16 bits"
            )
        try:
            if self.exif:
                ImageOps.exif_transpose(picture, in_place=True)
            if picture.mode.startswith("I"):  # 16 bits, of which Pillow would cut off all above 255
                picture = Image.fromarray((np.asarray(picture) >> 8).astype(np.uint8))
            mode = "L" if self.color == "gray" else "RGB"
            pixels = np.array(picture if picture.mode == mode else picture.convert(mode))
        except Exception as error:
            raise _broken(name, encoded, error) from error
        if self.color == "gray":
            pixels = pixels[:, :, np.newaxis]
        elif self.color == "bgr":
            pixels = np.ascontiguousarray(pixels[:, :, ::-1])
        return torch.from_numpy(pixels).to(self.torch_device, non_blocking=True).permute(2, 0, 1)


def _bytes_of(item: Any) -> bytes:
    """Return the file; what is not bytes is copied, since others may write there while it is decoded."""
    data = data_of(item, "DecodeTensor")
    if type(data) is not bytes:
        try:
            data = bytes(memoryview(data).cast("B"))
        except TypeError:
            raise hami.DataTypeError(
                f"DecodeTensor takes the bytes of an image file, got {type(data).__name__}"
            ) from None
    if not data:
        raise hami.RequestError("DecodeTensor takes the bytes of an image file, got none")
    return data  # type: ignore[no-any-return]


def _upright(pictures: torch.Tensor, orientation: int) -> torch.Tensor:
    swap, axes = _UPRIGHT.get(orientation, (False, []))
    if swap:
        pictures = pictures.transpose(-2, -1)
    return pictures.flip(axes) if axes else pictures


def _broken(name: str, encoded: bytes, error: Exception) -> hami.RequestError:
    reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
    return hami.RequestError(
        f"DecodeTensor: the {name} picture in {len(encoded)} bytes cannot be decoded ({reason}); "
        "the file is truncated or damaged"
    )
