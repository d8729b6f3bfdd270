"""Every command of the installation guides runs literally on a system without our packages."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from _lib import wheel_env
from _lib.paths import ROOT
from conftest import EXTRAS, PLUGINS, MakeMachine, Serve, core_wheel, plugin_wheel, share_compiler
from hami_build import zig
from hami_build.interpreters import Interpreter

sys.path.insert(0, str(ROOT / "tests" / "python"))

from doc_blocks import Block, blocks_of

HOWTO = ROOT / "hami-core" / "docs" / "howto"
PAGES = ("install-anywhere.md", "install-plugins.md", "publish-a-plugin.md")
THIRD_PARTIES = ["pip", "pytest>=8", *EXTRAS["check"], *EXTRAS["wheel"]]  # other packages that the guides install


def sessions(page: Path) -> Iterator[list[Block]]:
    """Yield the console blocks of each fresh system, in order, without those that say why they do not run."""
    session: list[Block] = []
    runs = (block for block in blocks_of(page) if block.language == "console" and "skip" not in block.directives)
    for block in runs:
        if "machine" in block.directives and session:
            yield session
            session = []
        session.append(block)
    yield session


def commands(block: Block) -> Iterator[tuple[str, str]]:
    """Yield each command with its output; "" if the guide does not show it."""
    for part in f"\n{block.text}".split("\n$ ")[1:]:
        command, *output = part.rstrip("\n").split("\n")
        yield command, "".join(f"{line}\n" for line in output)


SESSIONS = [session for page in PAGES for session in sessions(HOWTO / page)]


@pytest.fixture(scope="session")
def shelf(serve: Serve, interpreter: Interpreter) -> str:
    """Return the address of an index with all packages that the guides install."""
    core = core_wheel(interpreter)
    assert core
    needed = wheel_env.third_party([core, *map(plugin_wheel, ("hami-onnx", "hami-build", "hami-tools"))])
    wheels = {wheel.name: wheel for wheel in wheel_env.download(interpreter, [*needed, *THIRD_PARTIES])}
    return serve("guides", [core, *map(plugin_wheel, PLUGINS), *wheels.values()])


@pytest.mark.parametrize("session", SESSIONS, ids=lambda session: f"{session[0].document.stem}-{session[0].line}")
def test_commands_of_the_guide(make_machine: MakeMachine, shelf: str, installers: str, session: list[Block]) -> None:
    machine = make_machine(shelf)
    machine.environment["PATH"] += f":{installers}"
    (machine.home / "ci").symlink_to(ROOT / "ci")
    for block in session:
        for command, output in commands(block):
            output_of_command = machine.run(command)
            # Installers may print progress before this output.
            if "hami-build[all]" in command:
                share_compiler(machine, *map(zig.target, zig.ARCHITECTURES))
            assert f"\n{output_of_command}".endswith(f"\n{output}"), f"{block.place}: $ {command}"
            if command.endswith("hami doctor"):
                assert output_of_command.endswith("\nno problems found\n"), block.place
