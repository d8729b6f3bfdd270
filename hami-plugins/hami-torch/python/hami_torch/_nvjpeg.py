"""JPEG files decoded on the GPU by nvJPEG, which torchvision brings."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from hami_torch import _streams
from hami_torch._torch import torch


@lru_cache(maxsize=1)
def torchvision_version() -> str | None:
    """Return the version of torchvision if it is installed and fits this torch."""
    try:
        import torchvision
        import torchvision.io
    except (ImportError, OSError, RuntimeError):
        return None
    return str(torchvision.__version__)


class Decoder:
    """Decodes for one backend, in order with the stream that is current."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._stream = _streams.lease(device)

    def decode(self, encoded: list[memoryview], *, gray: bool) -> list[torch.Tensor | Exception]:
        """Decode JPEG files to uint8 tensors C x H x W, in RGB or gray; an exception for each that fails.

        torchvision decodes on a stream of its own into memory of the current one, and does not wait for what still
        reads that memory: so the current stream is one where nothing does.
        """
        outer = torch.cuda.current_stream(self._device)
        if outer != torch.cuda.default_stream(self._device) and outer.query():
            return _decode(encoded, self._device, gray)
        with torch.cuda.stream(self._stream):
            pictures = _decode(encoded, self._device, gray)
        outer.wait_stream(self._stream)
        for picture in pictures:
            if isinstance(picture, torch.Tensor):
                picture.record_stream(outer)
        return pictures

    def close(self) -> None:
        self._stream.synchronize()
        _streams.give_back(self._stream)


def _decode(encoded: list[memoryview], device: torch.device, gray: bool) -> list[torch.Tensor | Exception]:
    import torchvision.io as io

    mode = io.ImageReadMode.GRAY if gray else io.ImageReadMode.RGB
    files = [torch.frombuffer(bytearray(data), dtype=torch.uint8) for data in encoded]
    if len(files) > 1 and _takes_lists():
        try:
            return list(io.decode_jpeg(files, mode=mode, device=device))
        except torch.cuda.OutOfMemoryError:
            raise
        except RuntimeError:  # one of them is broken: which?
            pass
    return [_decode_one(io, file, mode, device) for file in files]


def _decode_one(io: Any, file: torch.Tensor, mode: Any, device: torch.device) -> torch.Tensor | Exception:
    try:
        decoded: torch.Tensor = io.decode_jpeg(file, mode=mode, device=device)
    except torch.cuda.OutOfMemoryError:
        raise
    except RuntimeError as error:
        return error
    return decoded


def _takes_lists() -> bool:
    """Whether this torchvision decodes several files in one call; 0.20 was the first."""
    major, minor = (int(part) for part in (torchvision_version() or "0.0").split(".")[:2])
    return (major, minor) >= (0, 20)
