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

from hami._cli.arguments import add_command, add_inputs, add_source, add_trace, count, positive, real, seconds, whole
from hami._cli.inputs import Input, inputs_of
from hami._cli.main import all_commands, main, report
from hami._cli.show import aligned, json_of, short
from hami._cli.show_file import describe_file, lines_of_file
from hami._cli.source import require_node, traced
from hami._cli.terminal import print_lines, print_table
from hami._plugins.messages import describe_exception
from hami._text import did_you_mean, printable, visible, visible_lines

__all__ = [
    "Input",
    "add_command",
    "add_inputs",
    "add_source",
    "add_trace",
    "aligned",
    "all_commands",
    "count",
    "describe_exception",
    "describe_file",
    "did_you_mean",
    "inputs_of",
    "json_of",
    "lines_of_file",
    "main",
    "positive",
    "print_lines",
    "print_table",
    "printable",
    "real",
    "report",
    "require_node",
    "seconds",
    "short",
    "traced",
    "visible",
    "visible_lines",
    "whole",
]
