"""A view of one component of an `AllRounder`."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from hami_serve.model import Handle, ModelInfo
from hami_serve.registry import Registry


class Component:
    """A component of an `AllRounder`, by name. It keeps no model alive."""

    def __init__(
        self,
        name: str,
        registry: Registry,
        submit: Callable[..., Future[dict[str, Any]]],
        move: Callable[[str, Any, str | None], None],
    ) -> None:
        self.name = name
        self._registry = registry
        self._submit = submit
        self._move = move

    def __call__(
        self, request: dict[str, Any], version: str | None = None, timeout: float | None = None
    ) -> dict[str, Any]:
        """Run one request, and wait for it; as a call of a pipe."""
        return self._submit(self.name, request, version, timeout).result()

    def to(self, device: Any, version: str | None = None) -> None:
        """Move it to another device: build there, switch, and close the old model.

        Args:
            device: The value for the parameter `device` of its backends, such as "cuda:1".
            version: The version; by default all versions.

        Raises:
            ConfigError: None of its backends has the parameter `device`.
            Exception: The model cannot be built there. It runs on where it is.
        """
        self._move(self.name, device, version)

    @property
    def handles(self) -> list[Handle]:
        """The handles of its versions."""
        return [model.handle for model in self._registry.versions(self.name).values()]

    def models(self) -> list[ModelInfo]:
        """Return a snapshot of each version."""
        return [model.info() for model in self._registry.versions(self.name).values()]

    def __repr__(self) -> str:
        return f'<hami_serve.Component "{self.name}">'
