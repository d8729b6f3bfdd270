"""Runs the command `hami serve`: loads the models, listens, and drains on SIGTERM."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import ctypes
import importlib
import importlib.util
import json
import logging
import os
import resource
import socket
import ssl
import stat
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import hami

from hami_serve import access_log
from hami_serve.access import Gate, is_loopback, read, read_token
from hami_serve.access_log import AccessLog
from hami_serve.budget import default_limit
from hami_serve.cors import Cors
from hami_serve.failures import unraisable_in_log
from hami_serve.http_app import Direct, application
from hami_serve.http_server import HttpServer
from hami_serve.log_lines import logging_to
from hami_serve.peers import Peers
from hami_serve.serving import Serving, with_settings
from hami_serve.tracing import Tracing, exporting
from hami_serve.watching import Watcher

if TYPE_CHECKING:
    from hami_serve.grpc_server import GrpcServer
    from hami_serve.native_door import NativeDoor
    from hami_serve.native_grpc import NativeGrpc

STDERR = 2  # a descriptor
BACKLOG = 2048
MAX_FILES = 1 << 16
FEWEST_FILES = 64  # below, gRPC has ended the process; an idle server has 16
MAX_KEPT = 32 << 20  # bytes of an allocation that is kept when it is freed; the largest value that glibc takes
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # of malloc.h


def run(
    arguments: argparse.Namespace,
    announce: Callable[[list[str]], None],
    peers: Peers | None = None,
    *,
    beside_others: bool = False,
) -> None:
    """Serve in this process until a signal ends it.

    While the models load, probes are answered and requests wait.

    Args:
        arguments: Those of the command. Ports that were 0 become those that were chosen.
        announce: Called with the names of the models as soon as they are loaded.
        peers: The other workers, which listen on the same ports.
        beside_others: The others serve already: connections go to them until the models are loaded.
    """
    with logging_to(STDERR, as_json=arguments.log == "json"):
        if arguments.access_log:
            access_log.log.setLevel(logging.INFO)
        with exporting(arguments.otlp):
            _run_logging(arguments, announce, peers, beside_others)


def _run_logging(
    arguments: argparse.Namespace,
    announce: Callable[[list[str]], None],
    peers: Peers | None,
    beside_others: bool,
) -> None:
    tls = _tls(arguments)
    import_all(arguments.imports)
    max_body = arguments.max_request_mib << 20
    max_open = arguments.max_open_mib << 20 if arguments.max_open_mib else max(default_limit(), max_body)
    serving = Serving(
        with_settings(arguments.source, arguments.set) if arguments.set else arguments.source,
        allow_control=arguments.allow_control,
        shared_memory=arguments.shared_memory,
        max_loaded=arguments.max_loaded,
        drain_timeout=arguments.drain,
        peers=peers,
        max_open=max_open // arguments.workers,
    )
    keep_freed_memory()
    # It looks at the folder before the models are loaded: what changes meanwhile is found by its next look.
    watcher = Watcher(serving, Path(arguments.source)) if arguments.watch else None
    if beside_others:
        serving.start()
    listening = [listen(arguments.host, arguments.http, shared=peers is not None)]
    if arguments.uds:
        listening.append(listen_at(arguments.uds))
    serving.begin()
    arguments.http = listening[0].getsockname()[1]
    token = read_token(arguments.token_file)
    gate = Gate(
        Direct(application(serving, max_body)),
        token,
        arguments.allow_hosts,
        loopback=is_loopback(arguments.host),
        origins=arguments.cors,
    )
    native = None
    if arguments.door == "native" or (arguments.door == "auto" and not arguments.tls_cert):
        from hami_serve.native_door import NativeDoor

        native = NativeDoor(serving, max_body, token, loopback=is_loopback(arguments.host), origins=arguments.cors)
    http = HttpServer(
        AccessLog(Tracing(Cors(gate, arguments.cors) if arguments.cors else gate)),
        serving,
        arguments.drain,
        native,
        tls=tls,
    )
    with unraisable_in_log(), watcher or contextlib.nullcontext():
        asyncio.run(_run(arguments, http, native, serving, listening, token, announce))


def _tls(arguments: argparse.Namespace) -> ssl.SSLContext | None:
    if not arguments.tls_cert:
        return None
    made = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)

    def passphrase() -> str:
        raise hami.ConfigError(
            f"--tls-key {arguments.tls_key} is encrypted, and a server has no passphrase; write it decrypted to a file "
            f"that only the server reads: openssl pkey -in {arguments.tls_key} -out FILE"
        )

    try:
        made.load_cert_chain(arguments.tls_cert, arguments.tls_key, passphrase)
    except OSError as error:
        raise hami.ConfigError(
            f"--tls-cert {arguments.tls_cert} and --tls-key {arguments.tls_key} are not a certificate in PEM and its "
            f"private key: {error}"
        ) from error
    return made


async def _run(
    arguments: argparse.Namespace,
    http: HttpServer,
    native: NativeDoor | None,
    serving: Serving,
    listening: list[socket.socket],
    token: str | None,
    announce: Callable[[list[str]], None],
) -> None:
    """Serve both protocols until a signal ends HTTP; then both have the same time for their open requests."""
    grpc: GrpcServer | NativeGrpc | None = None
    if arguments.grpc is not None:
        grpc = _grpc_server(arguments, serving, token, native)
        await grpc.start()
        arguments.grpc = grpc.port
        http.beside = grpc.stop(arguments.drain)

    async def loaded() -> None:
        await serving.started()
        if grpc is not None:
            await grpc.set_ready()
        announce(serving.usable())

    http.when_started = loaded
    async with serving.answering_peers():
        await http.serve(listening)


def announcement(models: list[str], arguments: argparse.Namespace, workers: int | None = None) -> str:
    """Return the line that says which models are served, and where."""
    host = f"[{arguments.host}]" if ":" in arguments.host else arguments.host
    addresses = {"http": f"http{'s' if arguments.tls_cert else ''}://{host}:{arguments.http}"}
    if arguments.uds:
        addresses["uds"] = f"unix:{arguments.uds}"
    if arguments.grpc is not None:
        addresses["grpc"] = f"grpc://{host}:{arguments.grpc}"
    if arguments.json:
        return json.dumps({"models": models, "workers": workers or 1, **addresses})
    by = f" with {workers} workers" if workers else ""
    return f"serving {', '.join(models) or 'no models'}{by} on {' and '.join(addresses.values())}"


def _grpc_server(
    arguments: argparse.Namespace, serving: Serving, token: str | None, native: NativeDoor | None
) -> GrpcServer | NativeGrpc:
    try:
        from hami_serve import native_grpc
        from hami_serve.grpc_server import GrpcServer
    except ImportError as error:
        raise hami.PluginError(
            f"--grpc needs packages that are not installed: {error}", 'install them: pip install "hami-serve[grpc]"'
        ) from error
    if native is not None and native_grpc.functions() is not None:
        listening = listen(arguments.host, arguments.grpc, shared=arguments.workers > 1)
        return native_grpc.NativeGrpc(native, serving, listening, arguments.max_request_mib << 20)
    host = f"[{arguments.host}]" if ":" in arguments.host else arguments.host
    tls = (read(arguments.tls_key, "--tls-key"), read(arguments.tls_cert, "--tls-cert")) if arguments.tls_cert else None
    return GrpcServer(
        serving,
        f"{host}:{arguments.grpc}",
        arguments.max_request_mib << 20,
        token=token,
        tls=tls,
        shared=arguments.workers > 1,
    )


def allow_many_connections() -> None:
    """Raise the soft limit of open files, which each connection needs one of, to the hard limit.

    Raises:
        hami.ConfigError: The hard limit is too low. asyncio and gRPC fail in many ways without descriptors.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < FEWEST_FILES:
        raise hami.ConfigError(
            f"a server needs at least {FEWEST_FILES} open files, and the limit of this process is {hard}; raise it: "
            "ulimit -n, LimitNOFILE of systemd, or --ulimit nofile of a container"
        )
    wanted = MAX_FILES if hard == resource.RLIM_INFINITY else min(hard, MAX_FILES)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def keep_freed_memory() -> None:
    """Let the C library keep freed memory for the next request. Else each large tensor gets new pages from the kernel,
    which cost more processor time than all the rest of its request.
    """
    if mallopt := getattr(ctypes.CDLL(None), "mallopt", None):  # the GNU C library has it
        mallopt(M_MMAP_THRESHOLD, MAX_KEPT)
        mallopt(M_TRIM_THRESHOLD, 4 * MAX_KEPT)


def listen(host: str, port: int, *, shared: bool = False) -> socket.socket:
    """Return a listening socket."""
    listening = bind(host, port, shared=shared)
    try:
        listening.listen(BACKLOG)
    except OSError as error:
        listening.close()
        raise _cannot_listen(host, port, error) from error
    return listening


def bind(host: str, port: int, *, shared: bool = False) -> socket.socket:
    """Return a socket at an address, which it shares with other processes if they all want it."""
    # The protocol must be named: asyncio sets TCP_NODELAY only on the connections of such a socket.
    bound = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if shared:
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        bound.bind((host, port))
    except (OSError, OverflowError) as error:
        bound.close()
        raise _cannot_listen(host, port, error) from error
    return bound


def listen_at(path: str) -> socket.socket:
    """Return a listening Unix socket that only the user of this process can connect to.

    A socket that a killed server has left is replaced.
    """
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    mask = os.umask(0o077)
    try:
        with contextlib.suppress(FileNotFoundError):
            _remove_unused(path)
        listening.bind(path)
        listening.listen(BACKLOG)
    except OSError as error:
        listening.close()
        raise hami.ConfigError(f'--uds: cannot listen on "{path}": {error}') from error
    finally:
        os.umask(mask)
    return listening


def _remove_unused(path: str) -> None:
    """Remove a Unix socket that a server has left.

    Raises:
        OSError: A server listens there, or it is another file.
    """
    if not stat.S_ISSOCK(os.stat(path).st_mode):
        raise FileExistsError("another file has this name")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            probe.connect(path)
        except ConnectionRefusedError:
            os.unlink(path)
            return
    raise FileExistsError("another server listens there")


def _cannot_listen(host: str, port: int, error: Exception) -> hami.ConfigError:
    return hami.ConfigError(f"cannot listen on {host} port {port}: {error}")


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
