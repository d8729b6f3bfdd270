"""Commands and measurements for pipelines of HAMi that run beside the runtime."""

from __future__ import annotations
