"""Platforms of wheels: how they are spelled, and the compiler's name of them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from hami_build.errors import Failure
from hami_build.zig import ARCHITECTURES, GLIBC_VERSION, HOST, target

PURE = "any"
NAME = re.compile(r"(many|musl)linux_(\d+)_(\d+)_(\w+)")
# Tags of the oldest platform, for older installers, which look for these.
OLDEST_TAGS = ("manylinux2014", "manylinux_2_17", "manylinux_2_28")


@dataclass(frozen=True)
class Platform:
    """A Linux with one architecture, and one C library of at least this version."""

    architecture: str
    libc: str  # "glibc" or "musl"
    version: tuple[int, int]

    @property
    def target(self) -> str:
        """The compiler's name."""
        if self.libc == "musl":
            return f"{self.architecture}-linux-musl"
        return target(self.architecture, ".".join(map(str, self.version)))

    @property
    def tags(self) -> list[str]:
        """The tags of its wheels."""
        if (self.libc, self.version) == ("glibc", GLIBC_VERSION):
            return [f"{policy}_{self.architecture}" for policy in OLDEST_TAGS]
        kind = "musllinux" if self.libc == "musl" else "manylinux"
        return [f"{kind}_{self.version[0]}_{self.version[1]}_{self.architecture}"]

    @property
    def is_host(self) -> bool:
        """Whether this machine has its architecture."""
        return self.architecture == HOST


def parse(text: str) -> Platform:
    """Return the platform with a name such as manylinux2014_x86_64, manylinux_2_28_aarch64 or musllinux_1_2_x86_64."""
    found = NAME.fullmatch(text.replace("manylinux2014_", "manylinux_2_17_"))
    if not found or found[4] not in ARCHITECTURES:
        raise Failure(
            f'"{text}" is not a known platform; write one such as manylinux2014_x86_64, manylinux_2_28_aarch64 or '
            "musllinux_1_2_x86_64"
        )
    version = (int(found[2]), int(found[3]))
    if found[1] == "many" and version < GLIBC_VERSION:
        raise Failure(f'"{text}" is older than the oldest supported platform, manylinux2014_{found[4]}')
    return Platform(found[4], "musl" if found[1] == "musl" else "glibc", version)


def chosen(names: Sequence[str] | None) -> list[Platform]:
    """Return the platforms with these names; without names, the default."""
    return [parse(name) for name in names or ()] or [default()]


def default() -> Platform:
    """Return the oldest platform with the architecture of this machine."""
    return parse(f"manylinux2014_{HOST}")
