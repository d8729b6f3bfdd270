"""What the commands of the core and those of plugins share: arguments, sources, inputs and output.

>>> import argparse
>>> import hami.cli
>>> commands = argparse.ArgumentParser(prog="hami").add_subparsers()
>>> parser = hami.cli.add_command(commands, "shout", "acme.commands:shout", "print a text in capitals")
>>> hami.cli.add_source(parser)
>>> parser.parse_args(["pages.toml", "--set", "max=4"]).source
'pages.toml'
"""

from __future__ import annotations

from hami._cli.arguments import add_command, add_source
from hami._cli.main import all_commands, main
from hami._cli.show import json_of

__all__ = [
    "add_command",
    "add_source",
    "all_commands",
    "json_of",
    "main",
]
