"""The help of each command: its examples, and its option for JSON."""

from __future__ import annotations

import argparse
import re
import shlex
from collections.abc import Iterator

import pytest
from hami._cli.main import EXAMPLES, _parser, all_commands

COMMANDS = list(_parser()[1].choices)


@pytest.mark.parametrize("command", COMMANDS)
def test_the_help_of_each_command_has_examples_that_it_accepts(
    capsys: pytest.CaptureFixture[str], command: str
) -> None:
    parser, _ = _parser()
    with pytest.raises(SystemExit) as end:
        parser.parse_args([command, "--help"])
    shown = capsys.readouterr().out
    assert end.value.code == 0
    for line in EXAMPLES[command]:
        assert f"  {line}\n" in shown
        words = shlex.split(re.sub(r'^eval "\$\((.*)\)"$', r"\1", line.split(" >")[0]))
        assert words[:2] == ["hami", command]
        parser.parse_args(words[1:])


def test_every_command_prints_json_on_request() -> None:
    parsers = all_commands()[1]
    assert [name for name in COMMANDS if "--json" not in parsers[name].format_help()] == []


def leaves(name: str, parser: argparse.ArgumentParser) -> Iterator[tuple[str, argparse.ArgumentParser]]:
    """Yield the commands below a command, or itself."""
    below = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    if not below:
        yield name, parser
    for action in below:
        for child, its in action.choices.items():
            yield from leaves(f"{name} {child}", its)


def test_every_command_of_a_plugin_prints_json_on_request() -> None:
    added = [pair for name, its in all_commands()[1].items() if name not in COMMANDS for pair in leaves(name, its)]
    if not added:
        pytest.skip("no installed plugin adds a command")
    assert [name for name, its in added if "--json" not in its.format_help()] == []
