"""The command `hami schema`: prints a JSON schema of configuration files, for editors."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from hami._cli.show import json_of
from hami._config.schema import schema_of
from hami._plugins.manager import installed


def schema(arguments: argparse.Namespace) -> int:
    """Load every plugin, and print the schema or write it to a file; return 1 if a backend cannot be loaded."""
    backends = installed.backends(load=True).values()
    text = json_of(schema_of(backends), indent=2) + "\n"
    if arguments.output:
        Path(arguments.output).write_text(text, "utf-8")
    else:
        sys.stdout.write(text)
    missing = [f"{backend.name} ({backend.owner})" for backend in backends if backend.params is None]
    if missing:
        print(
            f"error: the schema lacks the parameters of backends that cannot be loaded: {', '.join(missing)}; "
            "for the reasons run: hami plugins --load",
            file=sys.stderr,
        )
    return 1 if missing else 0
