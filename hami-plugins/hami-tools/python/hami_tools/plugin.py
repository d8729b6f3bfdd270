"""The entry module of the plugin, which adds commands, and the backend Shadow."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pluggy

hookimpl = pluggy.HookimplMarker("hami")


@hookimpl
def hami_register(registry: Any) -> None:
    registry.add("Shadow", "hami_tools.shadow.backend:Shadow")


@hookimpl
def hami_problems() -> list[str]:
    from hami_tools.packages import installation, policy_rules

    return [*policy_rules.problems(), *installation.problems()]


@hookimpl
def hami_watchdog(least_s: float, log: Callable[[str], None]) -> None:
    from hami_tools.watchdog import start

    start(least_s, log)


@hookimpl
def hami_result_files(folder: Path) -> Callable[..., Path]:
    from hami_tools.result_files import ResultFiles

    return ResultFiles(folder).write


@hookimpl
def hami_show_name(name: str) -> tuple[Any, str]:
    from hami_tools.search import show

    return show(name)


@hookimpl
def hami_open_model(path: str) -> dict[str, Any] | None:
    from hami_tools.bundle.opening import open_source

    return open_source(path)


@hookimpl
def hami_commands(subparsers: Any) -> None:
    from hami_tools.commands import add_commands

    add_commands(subparsers)
