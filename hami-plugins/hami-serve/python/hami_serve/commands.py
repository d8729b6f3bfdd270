"""The commands that this package adds to `hami`."""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hami.cli import whole

if TYPE_CHECKING:
    from hami_serve.triton_import import Imported

MAX_MIB = 64


def add_serve(subparsers: Any) -> None:
    """Add `hami serve`."""
    serve = subparsers.add_parser(
        "serve",
        help="serve models by the Open Inference Protocol",
        description="Serve models by the Open Inference Protocol (KServe v2) over HTTP and gRPC.",
        allow_abbrev=False,
    )
    serve.add_argument(
        "source",
        metavar="SOURCE",
        help="a model file, a folder of TOML or model files, models.toml, a packaged pipeline, or an expression",
    )
    serve.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="[NODE.]KEY=VALUE",
        help="set a key of a single pipeline, as in hami run; repeatable",
    )
    serve.add_argument("--host", default="127.0.0.1", help="address to listen on; default: 127.0.0.1, for this machine")
    serve.add_argument(
        "--http", type=whole(0, 65535), default=8000, metavar="PORT", help="port; default: 8000; 0: a free one"
    )
    serve.add_argument(
        "--door",
        choices=("auto", "native", "python"),
        default="auto",
        help="what reads requests: native threads, which call native models without Python and leave all "
        "other requests to python; or python alone; default: auto, which is native but with TLS",
    )
    serve.add_argument("--uds", metavar="PATH", help="also serve HTTP on a Unix socket, for programs of the same user")
    serve.add_argument(
        "--grpc", type=whole(0, 65535), metavar="PORT", help="also serve gRPC on this port; 0: a free one"
    )
    serve.add_argument(
        "--import",
        action="append",
        default=[],
        metavar="FILE",
        dest="imports",
        help="import a Python file or module first; repeatable",
    )
    serve.add_argument(
        "--workers",
        type=whole(1, 1 << 20),
        default=1,
        metavar="N",
        help="number of processes that share the ports, each with all models; default: 1",
    )
    serve.add_argument("--watch", action="store_true", help="reload models whose files in the folder change")
    serve.add_argument(
        "--drain", type=_seconds, default=30.0, metavar="TIME", help="time for open requests on SIGTERM; default: 30s"
    )
    serve.add_argument(
        "--max-request-mib",
        type=whole(1, 1 << 20),
        default=MAX_MIB,
        metavar="N",
        help=f"maximum size of a request in MiB; default: {MAX_MIB}",
    )
    serve.add_argument(
        "--max-open-mib",
        type=whole(1, 1 << 20),
        metavar="N",
        help="maximum memory of all open requests in MiB; default: a quarter of that of the machine",
    )
    serve.add_argument("--tls-cert", metavar="FILE", help="certificate chain in PEM: serve HTTPS and gRPC over TLS")
    serve.add_argument("--tls-key", metavar="FILE", help="private key of the certificate, in PEM")
    serve.add_argument(
        "--token-file", metavar="FILE", help="accept only requests with this token: Authorization: Bearer TOKEN"
    )
    serve.add_argument(
        "--max-loaded", type=whole(1, 1 << 20), metavar="N", help="maximum number of models that are loaded"
    )
    serve.add_argument("--allow-control", action="store_true", help="let clients load and unload models")
    serve.add_argument(
        "--shared-memory",
        action="store_true",
        help="let clients of this machine register regions of shared memory (/dev/shm) for their tensors",
    )
    serve.add_argument(
        "--allow-host",
        action="append",
        default=[],
        metavar="NAME",
        dest="allow_hosts",
        help="without a token: also accept requests for this host, and from its web pages; repeatable",
    )
    serve.add_argument(
        "--cors",
        action="append",
        default=[],
        metavar="ORIGIN",
        help="let pages of this origin, such as https://app.example.org, use the server; * for all; repeatable",
    )
    serve.add_argument(
        "--log", choices=("text", "json"), default="text", help="form of the log on stderr: lines of text, or of JSON"
    )
    serve.add_argument(
        "--otlp",
        metavar="URL",
        help="send spans of OpenTelemetry there by gRPC; default: OTEL_EXPORTER_OTLP_ENDPOINT, else none",
    )
    serve.add_argument("--access-log", action="store_true", help="also log each request, with its status and times")
    serve.add_argument("--json", action="store_true", help="print the models and addresses as JSON")
    serve.add_argument("--traceback", action="store_true", help="print the traceback of an error")
    serve.set_defaults(run=_serve)


def _serve(arguments: argparse.Namespace) -> int:
    from hami_serve.start import serve

    return serve(arguments)


def add_serve_check(subparsers: Any) -> None:
    """Add `hami serve-check`."""
    check = subparsers.add_parser(
        "serve-check",
        help="check whether a server follows the Open Inference Protocol",
        description="Check whether any server follows the Open Inference Protocol over HTTP.",
        allow_abbrev=False,
    )
    check.add_argument("url", metavar="URL", help="the server, such as http://127.0.0.1:8000")
    check.add_argument("--model", required=True, metavar="NAME", help="a model; it gets inputs of zeros")
    check.add_argument("--identity", metavar="NAME", help="a model that returns its only input, of any type")
    check.add_argument("--stream", metavar="NAME", help="a model that answers in several parts")
    check.add_argument("--junit", metavar="FILE", help="also write a report as JUnit XML")
    check.add_argument("--json", action="store_true", help="print JSON")
    check.add_argument("--traceback", action="store_true", help="print the traceback of an error")
    check.set_defaults(run=_serve_check)


def _serve_check(arguments: argparse.Namespace) -> int:
    from hami_serve.conformance.run import serve_check

    return serve_check(arguments)


def add_import_triton(subparsers: Any) -> None:
    """Add `hami import-triton`."""
    command = subparsers.add_parser("import-triton", help="describe a model repository of Triton for hami serve")
    _set_import(command, "Triton", "config.pbtxt", import_triton_command)


def add_import_mlserver(subparsers: Any) -> None:
    """Add `hami import-mlserver`."""
    command = subparsers.add_parser("import-mlserver", help="describe a model repository of MLServer for hami serve")
    _set_import(command, "MLServer", "model-settings.json", import_mlserver_command)


def _set_import(command: argparse.ArgumentParser, server: str, file: str, run: Callable[..., int]) -> None:
    command.description = f"Write models.toml for a model repository of {server}, and list what has no counterpart."
    command.allow_abbrev = False
    command.add_argument("folder", metavar="FOLDER", help=f"the repository: folders with {file}")
    command.add_argument("--output", metavar="FILE", help="the file to write; default: print it")
    command.add_argument("--json", action="store_true", help="print the models and what is not mapped as JSON")
    command.add_argument("--traceback", action="store_true", help="print the traceback of an error")
    command.set_defaults(run=lambda given: run(given.folder, given.output, as_json=given.json))


def import_triton_command(folder: str, output: str | None, *, as_json: bool = False) -> int:
    """Write the description of a repository, and what is not mapped to stderr; return 1 if a model is left out."""
    from hami_serve.triton_import import import_triton

    return _written(import_triton(Path(folder)), output, as_json=as_json)


def import_mlserver_command(folder: str, output: str | None, *, as_json: bool = False) -> int:
    """Do the same for a repository of MLServer."""
    from hami_serve.mlserver_import import import_mlserver

    return _written(import_mlserver(Path(folder)), output, as_json=as_json)


def _written(found: Imported, output: str | None, *, as_json: bool) -> int:
    if output is not None:
        Path(output).parent.mkdir(parents=True, exist_ok=True)
        Path(output).write_text(found.toml(), "utf-8")
    if as_json:
        print(json.dumps({"models": found.components, "not_mapped": found.notes}))
    else:
        print("\n".join(found.notes), end="\n" if found.notes else "", file=sys.stderr)
        print("" if output else found.toml(), end="")
    return 1 if found.errors else 0


def _seconds(text: str) -> float:
    found = re.fullmatch(r"(\d{1,9}(?:\.\d+)?)(ms|s|m)?", text)
    if not found:
        raise argparse.ArgumentTypeError(f'expected a time such as "30s", got {text[:40]!r}')
    return float(found[1]) * {"ms": 0.001, "m": 60.0}.get(found[2], 1.0)
