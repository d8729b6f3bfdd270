"""Decides which models may be loaded at a time, and which of them leave for a new one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import hami

from hami_serve.model import Model


@dataclass(frozen=True)
class Limits:
    """Limits of the models that are loaded at a time.

    Models of one slot count as one, with the memory of the largest: a model and the model that replaces it.
    """

    max_loaded: int | None = None
    memory_budget: int | None = None  # bytes

    def allow(self, models: Iterable[Model]) -> bool:
        memory: dict[object, int] = {}
        for model in models:
            memory[model.slot] = max(memory.get(model.slot, 0), model.version.memory)
        if self.max_loaded is not None and len(memory) > self.max_loaded:
            return False
        return self.memory_budget is None or sum(memory.values()) <= self.memory_budget

    def check(self, models: Iterable[Model]) -> None:
        """Check that each model alone is within the limits."""
        for model in models:
            if not self.allow([model]):
                raise hami.ConfigError(
                    f'"{model.handle.component}" version "{model.handle.version}" has memory = '
                    f"{model.version.memory}, more than the memory_budget of {self.memory_budget} bytes"
                )

    def fitting(self, models: Iterable[Model]) -> list[Model]:
        """Return the first of the models that are within the limits together."""
        found: list[Model] = []
        for model in models:
            if self.allow([*found, model]):
                found.append(model)
        return found

    def victims(self, loaded: Iterable[Model], new: Sequence[Model], evictable: Iterable[Model]) -> list[Model] | None:
        """Return which models leave so that the new ones are within the limits; None if that is not enough.

        Args:
            loaded: All models that have a slot.
            new: The new models.
            evictable: Those of `loaded` that may leave, and alone in their slots.
        """
        left = {*loaded, *new}
        slots = {model.slot for model in new}
        victims: list[Model] = []
        # Idle ones first: they leave at once. Among them the least recently used.
        for model in sorted(evictable, key=lambda model: (model.in_flight > 0, model.used)):
            if self.allow(left):
                break
            if model.slot not in slots:
                left.discard(model)
                victims.append(model)
        return victims if self.allow(left) else None
