"""JPEG files decoded on the GPU by nvJPEG, which torchvision brings."""

from __future__ import annotations

import importlib
import warnings
from functools import lru_cache
from typing import Any

from hami_torch import _streams
from hami_torch._torch import torch


@lru_cache(maxsize=1)
def _torchvision_io() -> Any:
    return importlib.import_module("torchvision.io")


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
        _quiet()
        self._device = device
        self._stream = _streams.lease(device)
        self._done = torch.cuda.Event()  # one for all: a later record covers what an earlier one did

    def decode(self, encoded: list[bytes | memoryview], *, gray: bool) -> list[torch.Tensor | Exception]:
        """Decode JPEG files to uint8 tensors C x H x W, in RGB or gray; an exception for each that fails.

        torchvision decodes on a stream of its own into memory of the current one, and does not wait for what still
        reads that memory: so the current stream is one where nothing does.
        """
        outer = _streams.current(self._device)
        if outer.cuda_stream != 0 and outer.query():
            return _decode(encoded, self._device, gray)
        with _streams.using(self._stream):
            pictures = _decode(encoded, self._device, gray)
        self._done.record(self._stream)
        outer.wait_event(self._done)
        for picture in pictures:
            if isinstance(picture, torch.Tensor):
                picture.record_stream(outer)
        return pictures

    def close(self) -> None:
        self._stream.synchronize()
        _streams.give_back(self._stream)


def _decode(encoded: list[bytes | memoryview], device: torch.device, gray: bool) -> list[torch.Tensor | Exception]:
    io = _torchvision_io()
    mode = io.ImageReadMode.GRAY if gray else io.ImageReadMode.RGB
    files = [torch.frombuffer(data, dtype=torch.uint8) for data in encoded]
    if len(files) > 1 and _takes_lists():
        try:
            return io.decode_jpeg(files, mode=mode, device=device)  # type: ignore[no-any-return]
        except torch.cuda.OutOfMemoryError:
            raise
        except RuntimeError:  # one of them is broken: which?
            pass
    return [_decode_one(io, file, mode, device) for file in files]


@lru_cache(maxsize=1)
def _quiet() -> None:
    """Have torch warn now, unheard, of memory that is read-only, which it does once: the decoder only reads."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.frombuffer(b"0", dtype=torch.uint8)


def _decode_one(io: Any, file: torch.Tensor, mode: Any, device: torch.device) -> torch.Tensor | Exception:
    try:
        decoded: torch.Tensor = io.decode_jpeg(file, mode=mode, device=device)
    except torch.cuda.OutOfMemoryError:
        raise
    except RuntimeError as error:
        return error
    return decoded


@lru_cache(maxsize=1)
def _takes_lists() -> bool:
    """Whether this torchvision decodes several files in one call; 0.20 was the first."""
    major, minor = (int(part) for part in (torchvision_version() or "0.0").split(".")[:2])
    return (major, minor) >= (0, 20)
