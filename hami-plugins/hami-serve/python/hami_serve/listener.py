"""Accepts connections: it waits while the process has no descriptor left, and closes without losing one."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import logging
import os
import resource
import socket
import ssl
import struct
import sys
from collections.abc import Callable, Iterator

ACCEPTED_AT_ONCE = 64  # connections, before others have the loop
RESERVED = 32  # descriptors that connections leave to the files of requests and models
RETRY_S = 0.5  # without a descriptor
LOG_S = 10.0  # between two lines about that
HANDSHAKE_S = 0.1  # for connections that have begun when the listener closes
SO_ATTACH_FILTER = 26  # of Linux
# A program for the packet filter of the kernel: it drops the packets that ask for a new connection, which have the flag
# SYN in byte 13 of their TCP header.
NO_NEW = b"".join(
    struct.pack("=HBBI", *instruction)
    for instruction in ((0x30, 0, 0, 13), (0x45, 0, 1, 0x02), (0x06, 0, 0, 0), (0x06, 0, 0, 0xFFFFFFFF))
)


class Listener:
    """Makes a connection of each that a listening socket accepts, in the current asyncio loop."""

    def __init__(
        self,
        listening: socket.socket,
        make: Callable[[], asyncio.BaseProtocol],
        tls: ssl.SSLContext | None = None,
        take: Callable[[socket.socket], None] | None = None,
    ) -> None:
        """Begin to accept. `take`, if it is given, takes the sockets of the connections instead."""
        self._socket = listening
        self._socket.setblocking(False)
        self._make = make
        self._take = take
        self._tls = tls
        self._loop = asyncio.get_running_loop()
        limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        self._usable = limit - min(RESERVED, limit // 4) if limit != resource.RLIM_INFINITY else 1 << 30
        self._connecting: set[asyncio.Task[None]] = set()
        self._next_log = 0.0
        self._pause: asyncio.TimerHandle | None = None
        self._loop.add_reader(self._socket, self._accept)

    def _accept(self) -> bool:
        """Accept what waits; return whether more may wait."""
        for _ in range(ACCEPTED_AT_ONCE):
            try:
                connection, _ = self._socket.accept()
            except (BlockingIOError, InterruptedError):
                return False
            except ConnectionAbortedError:  # the client has left
                continue
            except OSError as error:
                self._wait(error)
                return False
            if connection.fileno() >= self._usable:
                self._wait(OSError("few descriptors are left"))
            if self._take is not None:
                self._take(connection)
            else:
                connection.setblocking(False)
                task = self._loop.create_task(self._connect(connection))
                self._connecting.add(task)
                task.add_done_callback(self._connecting.discard)
            if self._pause is not None:
                return False
        return True

    def _wait(self, error: OSError) -> None:
        """Accept again in a while. The connections that exist go on, and new ones wait in the kernel."""
        now = self._loop.time()
        if now >= self._next_log:
            self._next_log = now + LOG_S
            text = "new connections wait, as the server has too few descriptors: %s; raise its limit (ulimit -n)"
            logging.getLogger("hami.serve").warning(text, error)
        self._loop.remove_reader(self._socket)
        self._pause = self._loop.call_later(RETRY_S, self._go_on)

    def _go_on(self) -> None:
        self._pause = None
        try:
            lowest = os.dup(self._socket.fileno())  # the kernel gives the lowest number that is free
            os.close(lowest)
        except OSError as error:
            self._wait(error)
            return
        if lowest >= self._usable:
            self._wait(OSError("few descriptors are left"))
        else:
            self._loop.add_reader(self._socket, self._accept)

    async def _connect(self, connection: socket.socket) -> None:
        try:
            await self._loop.connect_accepted_socket(self._make, connection, ssl=self._tls)
        except (OSError, ssl.SSLError) as error:
            logging.getLogger("hami.serve").debug("a connection could not be made: %s", error)
            connection.close()

    async def close(self) -> None:
        """Take no new connections; accept those of clients that believe to be connected."""
        if self._socket.family == socket.AF_UNIX:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self._socket.getsockname())
        with contextlib.suppress(OSError):  # another system, or a sandbox: a connection of this moment may be lost
            refuse_new(self._socket)
            await asyncio.sleep(HANDSHAKE_S)
        if self._pause is not None:
            self._pause.cancel()
        while self._accept():
            await asyncio.sleep(0)
        if self._pause is not None:
            self._pause.cancel()
        self._loop.remove_reader(self._socket)
        self._socket.close()
        if self._connecting:
            await asyncio.wait(self._connecting, timeout=HANDSHAKE_S)


def refuse_new(listening: socket.socket) -> None:
    """Make a socket ignore new connections from now on, and keep those that wait to be accepted.

    If a listening socket is closed, the kernel resets those that wait, though their clients may have sent a request.
    """
    if sys.platform != "linux":
        raise OSError("this system has no such filter")
    program = ctypes.create_string_buffer(NO_NEW)
    length = len(NO_NEW) // struct.calcsize("=HBBI")
    listening.setsockopt(socket.SOL_SOCKET, SO_ATTACH_FILTER, struct.pack("@HP", length, ctypes.addressof(program)))


def refuse_new_at(port: int) -> None:
    """Do the same with the sockets of this process that listen at a port, such as those of gRPC, which it keeps."""
    with contextlib.suppress(OSError):  # another system, or a sandbox
        for descriptor in map(int, os.listdir("/proc/self/fd")):
            with contextlib.suppress(OSError), _borrowed(descriptor) as found:  # it is a file, or closed
                is_listening = found.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
                if is_listening and found.family != socket.AF_UNIX and found.getsockname()[1] == port:
                    refuse_new(found)


@contextlib.contextmanager
def _borrowed(descriptor: int) -> Iterator[socket.socket]:
    """Use a socket of which there is only the descriptor."""
    found = socket.socket(fileno=descriptor)
    try:
        yield found
    finally:
        found.detach()
