"""The entry module of the plugin. Its backend, and numpy with it, are imported when a pipeline uses it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pluggy

hookimpl = pluggy.HookimplMarker("hami")


@hookimpl
def hami_register(registry: Any) -> None:
    registry.add_library(Path(__file__).with_name("door.so"))
    registry.add("Remote", "hami_serve.remote.backend:Remote")


@hookimpl
def hami_data_type(backend: str) -> str | None:
    return "bytes" if backend == "Remote" else None  # which sends them on as they are


@hookimpl
def hami_commands(subparsers: Any) -> None:
    from hami_serve.commands import add_import_mlserver, add_import_triton, add_serve, add_serve_check

    add_serve(subparsers)
    add_serve_check(subparsers)
    add_import_triton(subparsers)
    add_import_mlserver(subparsers)


@hookimpl
def hami_report() -> dict[str, str]:
    import hami

    with hami.pipe("hami-serve::DoorLibraries") as pipe:
        return {"parsers": str(pipe({"data": None})["result"])}
