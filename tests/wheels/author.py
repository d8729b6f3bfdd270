"""A plugin in C++ as its author makes it: `hami new-plugin`, then hami-build for every platform."""

from __future__ import annotations

from pathlib import Path

from machine import Machine

# Both libcs and both architectures, but not every pair: zig builds its C++ library for each, in a minute.
PLATFORMS = ("manylinux2014_x86_64", "manylinux_2_28_x86_64", "manylinux2014_aarch64")
NAME, RUN, ANSWER = "acme-fast", ["run", "AcmeFast(step=2)", "--data", "40"], "42\n"


def build_wheels(machine: Machine) -> dict[str, Path]:
    """Return the wheel for each platform, all gold, made on a system that has hami-build in `env`."""
    machine.run(f"env/bin/hami new-plugin {NAME} --cpp")
    made = {}
    for platform in PLATFORMS:
        machine.run(f"env/bin/hami-build wheel {NAME} --platform {platform} --to {platform}")
        (made[platform],) = (machine.home / platform).glob("*.whl")
    machine.run("env/bin/hami-build check manylinux*/*.whl --require gold")
    return made
