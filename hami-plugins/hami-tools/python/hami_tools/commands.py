"""Declares the commands and their arguments. The module of a command is imported when the command runs."""

from __future__ import annotations

from typing import Any

from hami.cli import add_command


def add_commands(commands: Any) -> None:
    """Add every command of this package."""
    schema = add_command(
        commands,
        "schema",
        "hami_tools.schema:schema",
        "print a JSON schema of configuration files, for editors",
        examples=["hami schema --output hami.schema.json"],
    )
    schema.add_argument("--output", metavar="FILE", help="write the schema to this file")

    completion = add_command(
        commands,
        "completion",
        "hami_tools.completion:completion",
        "print a script that completes commands in a shell",
        examples=[
            'eval "$(hami completion bash)"',
            "hami completion fish > ~/.config/fish/completions/hami.fish",
        ],
    )
    completion.add_argument("shell", choices=("bash", "zsh", "fish"), help="the shell")
