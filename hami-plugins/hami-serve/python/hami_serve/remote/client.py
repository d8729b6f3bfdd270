"""The client of one remote model: it sends requests to replicas, and tries another one where that is safe.

Several backends with the same settings share a client, so that they also share its connections and its circuits. The
client runs on an asyncio loop in a thread of its own.
"""

from __future__ import annotations

import asyncio
import os
import ssl
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass

import hami

from hami_serve.access import read, read_token
from hami_serve.datatypes import Array
from hami_serve.errors import RemoteUnavailable, with_text
from hami_serve.model import TensorSpec
from hami_serve.remote.call import RemoteCall, ReplicaFailed, Transport
from hami_serve.remote.replicas import Replica, Replicas

METADATA_S = 10.0
SCHEMES = ("http", "https", "grpc", "grpcs")


@dataclass(frozen=True)
class Settings:
    """What a client connects to, and how."""

    urls: tuple[str, ...]
    model: str
    version: str = ""
    attempts: int = 2
    connect_timeout: float = 1.0
    attempt_timeout: float | None = None
    recovery: float = 5.0
    token_file: str | None = None
    tls_ca: str | None = None


class Client:
    """Sends requests to the replicas of one model. `infer` may be called by any thread."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self._transports = {url: _transport(settings, url) for url in settings.urls}
        self._replicas = Replicas(settings.urls, settings.recovery)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="hami-remote", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._loop.run_forever()
        finally:
            self._loop.close()

    def inputs(self) -> tuple[TensorSpec, ...]:
        """Return the inputs of the model, from the first replica that answers."""
        return asyncio.run_coroutine_threadsafe(self._inputs(), self._loop).result()

    async def _inputs(self) -> tuple[TensorSpec, ...]:
        reasons = {}
        for url, transport in self._transports.items():
            try:
                return await asyncio.wait_for(transport.inputs(), METADATA_S)
            except ReplicaFailed as error:
                reasons[url] = str(error)
            except asyncio.TimeoutError as error:
                reasons[url] = str(error) or f"no metadata within {METADATA_S:g} s"
        raise self._unavailable(reasons)

    def infer(self, call: RemoteCall) -> Future[dict[str, Array]]:
        """Start a request. The future has the outputs by name; to cancel it ends the request at the server too."""
        return asyncio.run_coroutine_threadsafe(self._outcome(call), self._loop)

    async def _outcome(self, call: RemoteCall) -> dict[str, Array]:
        task = asyncio.current_task()
        assert task is not None
        task.add_done_callback(_look_at)
        return await self._infer(call)

    async def _infer(self, call: RemoteCall) -> dict[str, Array]:
        """Try replicas, until one gives an answer that counts.

        A request that may have run is not sent again if it belongs to a sequence, because the replica keeps a state, or
        if its caller has parts of the answer.
        """
        tried: list[Replica] = []
        reasons: dict[str, str] = {}
        full: hami.QueueFull | None = None
        while len(tried) < self.settings.attempts:
            replica = self._replicas.choose(time.monotonic(), tried, call.sequence)
            if replica is None or (full and replica in tried):
                break
            tried.append(replica)
            try:
                return await self._attempt(replica, call)
            except hami.QueueFull as error:
                full = error
            except ReplicaFailed as error:
                reasons[replica.url] = str(error)
                if error.may_have_run and (call.sequence is not None or (call.parts and call.parts.begun)):
                    break
        raise full or self._unavailable(reasons)

    async def _attempt(self, replica: Replica, call: RemoteCall) -> dict[str, Array]:
        works: bool | None = None
        self._replicas.begin(replica)
        try:
            answer = await asyncio.wait_for(self._transports[replica.url].infer(call), self.settings.attempt_timeout)
            works = True
            return answer
        except ReplicaFailed:
            works = False
            raise
        except hami.Error:
            works = True
            raise
        except asyncio.TimeoutError:
            works = False
            reason = f"no answer within {self.settings.attempt_timeout:g} s"
            raise ReplicaFailed(reason, may_have_run=True) from None
        finally:
            self._replicas.end(replica, time.monotonic(), works)

    def _unavailable(self, reasons: dict[str, str]) -> RemoteUnavailable:
        described = [
            f"{url}: {reasons.get(url, 'it failed before, and is tried again later')}" for url in self.settings.urls
        ]
        text = f'no replica of the remote model "{self.settings.model}" is available'
        return with_text(RemoteUnavailable(f"{text}; {'; '.join(described)}"), text)

    def close(self) -> None:
        """End all requests, and close the connections."""
        asyncio.run_coroutine_threadsafe(self._close(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    async def _close(self) -> None:
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        for transport in self._transports.values():
            await transport.close()


def _look_at(task: asyncio.Task[dict[str, Array]]) -> None:
    """Let asyncio log no exception that comes while a request is cancelled: its future has no outcome any more."""
    if not task.cancelled():
        task.exception()


def _transport(settings: Settings, url: str) -> Transport:
    scheme = url.partition("://")[0]
    if scheme not in SCHEMES or not url.partition("://")[2]:
        known = ", ".join(f"{each}://" for each in SCHEMES)
        raise hami.ConfigError(f'the url of a server begins with one of {known}, got "{url}"')
    extra = "remote" if scheme.startswith("http") else "grpc"
    try:
        if extra == "remote":
            from hami_serve.remote.http_transport import HttpTransport

            made: Callable[..., Transport] = HttpTransport
        else:
            from hami_serve.remote.grpc_transport import GrpcTransport

            made = GrpcTransport
    except ImportError as error:
        raise hami.PluginError(
            f"{scheme}:// needs packages that are not installed: {error}",
            f'install them: pip install "hami-serve[{extra}]"',
        ) from error
    return made(
        url,
        settings.model,
        settings.version,
        connect_timeout=settings.connect_timeout,
        token=read_token(settings.token_file),
        ca=_authorities(settings.tls_ca),
    )


def _authorities(path: str | None) -> str | None:
    """Return the certificates in a file, in PEM."""
    if path is None:
        return None
    text = read(path, "tls_ca").decode("ascii", "replace")
    try:
        ssl.create_default_context(cadata=text)
    except (ssl.SSLError, ValueError) as error:
        raise hami.ConfigError(f'tls_ca: "{path}" has no certificates in PEM: {error}') from error
    return text


_lock = threading.Lock()
_clients: dict[Settings, tuple[Client, int]] = {}  # and the number of their users


def _reset_after_fork() -> None:
    """Forget the parent's clients, whose threads do not exist in the child, and the lock, which may be held."""
    global _lock, _clients
    _lock, _clients = threading.Lock(), {}


os.register_at_fork(after_in_child=_reset_after_fork)


def open_client(settings: Settings) -> Client:
    """Return the client for these settings, and count one more user of it."""
    with _lock:
        client, users = _clients.get(settings) or (Client(settings), 0)
        _clients[settings] = client, users + 1
        return client


def close_client(client: Client) -> None:
    """Close a client if its last user leaves."""
    with _lock:
        _, users = _clients.pop(client.settings)
        if users > 1:
            _clients[client.settings] = client, users - 1
            return
    client.close()
