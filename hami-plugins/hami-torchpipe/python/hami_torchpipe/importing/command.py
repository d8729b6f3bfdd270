"""The command `hami import-torchpipe`."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from hami_torchpipe.importing.configuration import import_torchpipe


def import_command(arguments: argparse.Namespace) -> int:
    """Write the configuration, and what is not mapped to standard error."""
    found = import_torchpipe(arguments.file, cpu=arguments.cpu)
    if arguments.output:
        Path(arguments.output).write_text(found.toml(), "utf-8")
    if arguments.json:
        print(json.dumps({"configuration": found.config(), "not_mapped": found.notes}, ensure_ascii=False))
        return 0
    for note in found.notes:
        print(f"not mapped: {note}", file=sys.stderr)
    if not arguments.output:
        print(found.toml(), end="")
    return 0
