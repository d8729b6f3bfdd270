"""System shared memory of the protocol: regions that clients of this machine register, for tensors that are not sent.

Tensors are read and written as those of a file, and not mapped: a client that shrinks its region gets an error, and
cannot end the server by that.
"""

from __future__ import annotations

import os
import stat
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import hami

from hami_serve.budget import Lease
from hami_serve.errors import BadRequest, short

FOLDER = "/dev/shm"  # where Linux has the objects of shm_open
MAX_REGIONS = 1024
MAX_NAME = 255  # bytes of a key; characters of the name of a region
REGION = "shared_memory_region"  # parameters of tensors
SIZE = "shared_memory_byte_size"
OFFSET = "shared_memory_offset"
BYTES_COST = 8  # bytes for a byte of BYTES: as objects, elements of two characters take seven times as much


class Region:
    """A part of an object of shared memory, which stays open while requests use it."""

    def __init__(self, name: str, key: str, offset: int, size: int) -> None:
        """Open an object of this user.

        Raises:
            BadRequest: The object does not exist, belongs to another user, or is too small.
        """
        self.name, self.key, self.offset, self.size = name, key, offset, size
        self._file = -1
        path = key.removeprefix("/")
        try:
            length = len(os.fsencode(path))
        except UnicodeEncodeError:  # JSON can have half of a pair
            length = 0
        if not 0 < length <= MAX_NAME or "/" in path or "\0" in path or path in (".", ".."):
            raise BadRequest(f"a key of shared memory is /NAME, without another slash, got {short(key)}")
        try:
            self._file = os.open(f"{FOLDER}/{path}", os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK)
        except OSError as error:
            raise BadRequest(f'the shared memory "{short(key)}" cannot be opened: {error.strerror}') from None
        found = os.fstat(self._file)
        if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid():
            raise BadRequest(f'the shared memory "{short(key)}" does not belong to the user of this server')
        if offset + size > found.st_size:
            raise BadRequest(
                f'the shared memory "{short(key)}" has {found.st_size} bytes; '
                f"a region of {size} bytes at {offset} does not fit"
            )

    def __del__(self) -> None:
        if self._file >= 0:
            os.close(self._file)

    def described(self) -> dict[str, Any]:
        return {"name": self.name, "key": self.key, "offset": self.offset, "byte_size": self.size}

    def read(self, offset: int, size: int) -> memoryview:
        data = memoryview(bytearray(size))
        position = 0
        while position < size:
            count = os.preadv(self._file, [data[position:]], self.offset + offset + position)
            if count == 0:
                raise BadRequest(f'the client has shrunk the shared memory of region "{short(self.name)}"')
            position += count
        return data

    def write(self, offset: int, data: bytes | memoryview) -> None:
        if self.offset + offset + len(data) > os.fstat(self._file).st_size:  # writing would make it larger
            raise BadRequest(f'the client has shrunk the shared memory of region "{short(self.name)}"')
        left, position = memoryview(data), self.offset + offset
        try:
            while left:
                count = os.pwrite(self._file, left, position)
                left, position = left[count:], position + count
        except OSError as error:  # the pages of a sparse object come when they are written, and /dev/shm may be full
            why = f'the shared memory of region "{short(self.name)}" cannot be written: {error.strerror}'
            raise BadRequest(why) from None


@dataclass(frozen=True)
class Place:
    """Where a tensor is in a region."""

    region: Region
    offset: int
    size: int

    def parameters(self, size: int) -> dict[str, Any]:
        """Return those of an output with so many bytes that was written here."""
        found: dict[str, Any] = {REGION: self.region.name, SIZE: size}
        return found | ({OFFSET: self.offset} if self.offset else {})

    def write(self, what: str, data: bytes | memoryview) -> None:
        if len(data) > self.size:
            raise BadRequest(f"{what} has {len(data)} bytes; its {SIZE} is {self.size}")
        self.region.write(self.offset, data)


class Regions:
    """The regions of a server by their names. All threads use them."""

    def __init__(self, enabled: bool) -> None:
        self.enabled = enabled
        self._regions: dict[str, Region] = {}
        self._lock = threading.Lock()

    def check_enabled(self) -> None:
        """Raise BadRequest if this server has no shared memory."""
        if not self.enabled:
            raise BadRequest(
                "this server has no shared memory; send the tensor in the request, or start the server with "
                "--shared-memory"
            )

    def register(self, name: str, key: Any, offset: Any, size: Any) -> None:
        """Let requests use a part of an object of shared memory.

        Raises:
            BadRequest: Another region has the name, or the object cannot be used.
        """
        self.check_enabled()
        if not 0 < len(name) <= MAX_NAME or not isinstance(key, str):
            raise BadRequest(f"a region has a name of 1 to {MAX_NAME} characters and a key, got {short(name)}")
        made = Region(name, key, *_checked("the region", offset, size))
        with self._lock:
            if name in self._regions:
                raise BadRequest(f'there is a region "{short(name)}" already; unregister it first')
            if len(self._regions) >= MAX_REGIONS:
                raise BadRequest(f"a server has at most {MAX_REGIONS} regions; unregister some")
            self._regions[name] = made

    def unregister(self, name: str | None) -> None:
        """Forget a region, or all; requests that use it end as they would."""
        with self._lock:
            if name:
                self._regions.pop(name, None)
            else:
                self._regions.clear()

    def status(self, name: str | None) -> list[dict[str, Any]]:
        """Return a region, or all, as the protocol describes them."""
        with self._lock:
            found = [self._regions[name]] if name in self._regions else [] if name else [*self._regions.values()]
        if name and not found:
            raise hami.NotFound(f'region "{short(name)}" is not registered; register it first')
        return [each.described() for each in found]

    def place(self, what: str, parameters: Mapping[str, Any]) -> Place:
        """Return where the parameters of a tensor say that it is."""
        self.check_enabled()
        name = parameters[REGION]
        offset, size = _checked(what, parameters.get(OFFSET, 0), parameters.get(SIZE))
        with self._lock:
            region = self._regions.get(name) if isinstance(name, str) else None
        if region is None:
            raise BadRequest(f'{what} is in the region "{short(name)}", which is not registered')
        if offset + size > region.size:
            raise BadRequest(f"{what} has {size} bytes at {offset} of a region of {region.size} bytes")
        return Place(region, offset, size)

    def close(self) -> None:
        with self._lock:
            self._regions.clear()


NONE = Regions(enabled=False)  # fork: it is refused before its lock is taken


def _checked(what: str, offset: Any, size: Any) -> tuple[int, int]:
    """Return an offset and a size.

    Raises:
        BadRequest: They are not integers, or out of range.
    """
    for name, value, least in (("offset", offset, 0), ("byte size", size, 1)):
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value < 1 << 62:
            raise BadRequest(f"the {name} of {what} is an integer of at least {least}, got {short(value)}")
    return offset, size


@dataclass(frozen=True)
class Memory:
    """The regions for one request, which is charged for what it reads."""

    regions: Regions = NONE
    lease: Lease | None = None

    def read(self, what: str, datatype: str, parameters: Mapping[str, Any]) -> memoryview:
        place = self.regions.place(what, parameters)
        if self.lease is not None:
            self.lease.add_unbounded(place.size * (BYTES_COST if datatype == "BYTES" else 1))
        return place.region.read(place.offset, place.size)

    def place(self, what: str, parameters: Mapping[str, Any]) -> Place:
        return self.regions.place(what, parameters)


WITHOUT = Memory()
