"""Registers the backend of this package. It, and numpy with it, are imported when a pipeline uses them."""

from __future__ import annotations

from typing import Any

import pluggy

hookimpl = pluggy.HookimplMarker("hami")


@hookimpl
def hami_register(registry: Any) -> None:
    registry.add("AccelTensor", "hami_accel.accel_tensor:AccelTensor")


@hookimpl
def hami_report() -> dict[str, str]:
    from hami_accel.platform import Platform

    return {"accelerators": ", ".join(Platform().names())}
