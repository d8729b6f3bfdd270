"""Runs the command `hami serve`: loads the models, listens, and drains on SIGTERM."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import importlib
import importlib.util
import resource
import signal
import socket
import sys
from collections.abc import Coroutine, Iterator, Sequence
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

import hami
import uvicorn

from hami_serve.access import RequireToken, read, read_token
from hami_serve.http_app import application
from hami_serve.http_protocol import JoiningProtocol
from hami_serve.serving import Serving
from hami_serve.watching import Watcher

if TYPE_CHECKING:
    from hami_serve.grpc_server import GrpcServer

BACKLOG = 2048
MAX_FILES = 1 << 16
KEEP_ALIVE_S = 75


class HttpServer(uvicorn.Server):
    """A uvicorn server that ends with status 0 on SIGTERM and SIGINT, after its requests have ended."""

    def __init__(self, config: uvicorn.Config, serving: Serving) -> None:
        super().__init__(config)
        self._serving = serving
        self.beside: Coroutine[Any, Any, None] | None = None  # ends another server while this one drains

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        before = {number: signal.signal(number, self.handle_exit) for number in (signal.SIGTERM, signal.SIGINT)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        if self.beside is not None:  # before the models are closed
            await self.beside
        await super().shutdown(sockets)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self._serving.draining = True
        super().handle_exit(sig, frame)


def serve(arguments: argparse.Namespace) -> int:
    """Serve until a signal ends it; return the exit status."""
    if arguments.watch and not Path(arguments.source).is_dir():
        raise hami.ConfigError(f"--watch needs a folder, got {arguments.source}")
    import_all(arguments.imports)
    serving = Serving(
        arguments.source,
        allow_control=arguments.allow_control,
        max_loaded=arguments.max_loaded,
        drain_timeout=arguments.drain,
    )
    token = read_token(arguments.token_file)
    if bool(arguments.tls_cert) != bool(arguments.tls_key):
        raise hami.ConfigError("--tls-cert and --tls-key belong together; give both or none")
    for option, file in (("--tls-cert", arguments.tls_cert), ("--tls-key", arguments.tls_key)):
        if file:
            read(file, option)
    allow_many_connections()
    listening = listen(arguments.host, arguments.http)
    serving.start()
    made = application(serving, arguments.max_request_mib << 20)
    config = uvicorn.Config(
        RequireToken(made, token) if token else made,
        ssl_certfile=arguments.tls_cert,
        ssl_keyfile=arguments.tls_key,
        http=JoiningProtocol,
        ws="none",
        proxy_headers=False,
        log_level="warning",
        access_log=False,
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=max(1, round(arguments.drain)),
        server_header=False,
    )
    with _watching(arguments, serving):
        asyncio.run(_run(arguments, HttpServer(config, serving), serving, listening, token))
    return 0


@contextlib.contextmanager
def _watching(arguments: argparse.Namespace, serving: Serving) -> Iterator[None]:
    if not arguments.watch:
        yield
        return
    watcher = Watcher(serving, Path(arguments.source))
    watcher.start()
    try:
        yield
    finally:
        watcher.stop()


async def _run(
    arguments: argparse.Namespace, http: HttpServer, serving: Serving, listening: socket.socket, token: str | None
) -> None:
    """Serve both protocols until a signal ends HTTP; then gRPC has the same time for its open requests."""
    names = ", ".join(serving.rounder.components()) or "no models"
    if arguments.grpc is None:
        print(f"serving {names} on {address(listening, arguments.tls_cert)}", flush=True)
        await http.serve([listening])
        return
    grpc = _grpc_server(arguments, serving, token)
    await grpc.start()
    host = f"[{arguments.host}]" if ":" in arguments.host else arguments.host
    print(f"serving {names} on {address(listening, arguments.tls_cert)} and grpc://{host}:{grpc.port}", flush=True)
    http.beside = grpc.stop(arguments.drain)
    await http.serve([listening])


def _grpc_server(arguments: argparse.Namespace, serving: Serving, token: str | None) -> GrpcServer:
    try:
        from hami_serve.grpc_server import GrpcServer
    except ImportError as error:
        raise hami.PluginError(
            f"--grpc needs packages that are not installed: {error}", 'install them: pip install "hami-serve[grpc]"'
        ) from error
    host = f"[{arguments.host}]" if ":" in arguments.host else arguments.host
    tls = (read(arguments.tls_key, "--tls-key"), read(arguments.tls_cert, "--tls-cert")) if arguments.tls_cert else None
    return GrpcServer(serving, f"{host}:{arguments.grpc}", arguments.max_request_mib << 20, token=token, tls=tls)


def allow_many_connections() -> None:
    """Raise the soft limit of open files, which each connection needs one of, to the hard limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MAX_FILES if hard == resource.RLIM_INFINITY else min(hard, MAX_FILES)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def listen(host: str, port: int) -> socket.socket:
    """Return a listening socket."""
    # The protocol must be named: asyncio sets TCP_NODELAY only on the connections of such a socket.
    listening = socket.socket(
        socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP
    )
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((host, port))
        listening.listen(BACKLOG)
    except (OSError, OverflowError) as error:
        listening.close()
        raise hami.ConfigError(f"cannot listen on {host} port {port}: {error}") from error
    return listening


def address(listening: socket.socket, certificate: str | None = None) -> str:
    host, port = listening.getsockname()[:2]
    return f"http{'s' if certificate else ''}://{f'[{host}]' if ':' in host else host}:{port}"


def import_all(names: Sequence[str]) -> None:
    """Import modules, and files that end in .py, which register backends."""
    for name in names:
        try:
            if name.endswith(".py"):
                _import_file(Path(name))
            else:
                importlib.import_module(name)
        except (hami.ConfigError, KeyboardInterrupt):
            raise
        except BaseException as error:  # a script may even call sys.exit
            raise hami.ConfigError(f"--import {name}: {type(error).__name__}: {error}") from error


def _import_file(path: Path) -> None:
    if not path.is_file():
        raise hami.ConfigError(f'cannot import "{path}": no such file')
    sys.path.insert(0, str(path.resolve().parent))  # the file may import modules of its folder
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise hami.ConfigError(f'cannot import "{path}"')
    module = importlib.util.module_from_spec(spec)
    sys.modules.setdefault(path.stem, module)
    spec.loader.exec_module(module)
