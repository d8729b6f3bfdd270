"""Starts `hami serve`: checks its arguments, and serves in this process or in several."""

from __future__ import annotations

import argparse
from pathlib import Path

import hami

from hami_serve.access import read, read_token
from hami_serve.cors import checked_origins
from hami_serve.server import allow_many_connections, announcement, run
from hami_serve.source import read_each
from hami_serve.workers import supervise


def _check_has_models(arguments: argparse.Namespace) -> None:
    """Raise ConfigError for a folder without models, if none can come later."""
    folder = Path(arguments.source)
    if arguments.watch or arguments.allow_control or not folder.is_dir():
        return
    found, errors = read_each(folder)
    if not found and not errors:
        raise hami.ConfigError(
            f'"{folder}" has no models: neither a file NAME.toml, nor a folder NAME with 1.toml, nor a model file such '
            "as NAME.onnx whose plugin is installed; add one, or start without models by --watch or --allow-control"
        )


def serve(arguments: argparse.Namespace) -> int:
    """Serve until a signal ends it; return the exit status."""
    if arguments.watch and not Path(arguments.source).is_dir():
        raise hami.ConfigError(f"--watch needs a folder, got {arguments.source}")
    if arguments.allow_control and arguments.workers > 1:
        raise hami.ConfigError(
            "--allow-control needs one worker: a client that loads a model reaches only one of them; use --watch, or "
            "leave out --workers"
        )
    if arguments.shared_memory and arguments.workers > 1:
        raise hami.ConfigError(
            "--shared-memory needs one worker: a region that a client registers reaches only one; leave out --workers"
        )
    if arguments.uds and arguments.workers > 1:
        raise hami.ConfigError("--uds needs one worker: processes cannot share a Unix socket; leave out --workers")
    if arguments.max_open_mib is not None and arguments.max_open_mib < arguments.max_request_mib:
        raise hami.ConfigError(
            f"--max-open-mib is {arguments.max_open_mib}, and one request may have {arguments.max_request_mib} MiB; "
            "raise it, or lower --max-request-mib"
        )
    if arguments.set and (arguments.watch or Path(arguments.source).is_dir()):
        raise hami.ConfigError("--set sets keys of a single pipeline; write those of a folder into its files")
    arguments.cors = sorted(checked_origins(arguments.cors))
    _check_has_models(arguments)
    read_token(arguments.token_file)
    if arguments.door == "native" and arguments.tls_cert:
        raise hami.ConfigError("--door native has no TLS; leave it out, or let a proxy in front of it end TLS")
    if bool(arguments.tls_cert) != bool(arguments.tls_key):
        raise hami.ConfigError("--tls-cert and --tls-key belong together; give both or none")
    for option, file in (("--tls-cert", arguments.tls_cert), ("--tls-key", arguments.tls_key)):
        if file:
            read(file, option)
    allow_many_connections()
    if arguments.workers > 1:
        return supervise(arguments)

    def announce(models: list[str]) -> None:
        print(announcement(models, arguments), flush=True)

    run(arguments, announce)
    return 0
