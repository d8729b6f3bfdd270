"""The command `hami verify-plugins`: compares installed files with their hashes, and says who published each plugin."""

from __future__ import annotations

import argparse
from typing import Any

from hami.cli import json_of, print_table

from hami_tools.packages.verification import Verified, verify


def verify_plugins(arguments: argparse.Namespace) -> int:
    """Compare the installed files with their hashes; return 1 if a distribution differs."""
    results = verify()
    if arguments.json:
        print(json_of([_facts(result) for result in results]))
    else:
        rows = [
            [
                result.distribution,
                result.version,
                f"{result.files} files",
                result.problem or f"{_origin(result)}; {_publisher(result)}",
            ]
            for result in results
        ]
        print_table(rows)
    return 1 if any(result.problem for result in results) else 0


def _facts(result: Verified) -> dict[str, Any]:
    return {**result._asdict(), "publishers": [publisher._asdict() for publisher in result.publishers]}


def _publisher(result: Verified) -> str:
    found = " and ".join(map(str, result.publishers))
    return f"published by {found}" if found else f"publisher unknown: {result.unattested}"


def _origin(result: Verified) -> str:
    by = f" by {result.installer}" if result.installer else ""
    return f"as installed{by}{f' from {result.source}' if result.source else ''}"
