"""The command `hami shadow`: runs the same inputs through two pipelines, and compares their answers."""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

from hami import Pipe
from hami.cli import json_of, print_table
from hami.progress import Progress

from hami_tools.differences import Tolerance
from hami_tools.figures import figure
from hami_tools.measured import Request, built, readable_inputs
from hami_tools.shadow.record import Answer, Record
from hami_tools.shadow.snapshot import snapshot

MAX_SHOWN = 10  # inputs that differ


def shadow(arguments: argparse.Namespace) -> int:
    """Compare, print a table or JSON, and return 1 if an input could not be read or its answers differ."""
    inputs, unread = readable_inputs(arguments)
    folder = Path(arguments.folder) if arguments.folder else None
    record = Record(Tolerance(arguments.rtol, arguments.atol), arguments.keep, folder)
    differing: list[dict[str, Any]] = []
    with (
        built(arguments.source, arguments) as a,
        built(arguments.other, arguments) as b,
        Progress(len(inputs), "comparing") as progress,
    ):
        for number, (entry, request) in enumerate(inputs):
            progress.update(number, entry.label)
            first, second = (_answer(pipe, request, arguments.timeout) for pipe in (a, b))
            found = record.add(request, first, second, entry.label)
            if found.differs:
                differing.append({"input": entry.label, **found._asdict()})
    facts = {**record.as_dict(), "unread": unread, "differing": differing}
    print(json_of(facts)) if arguments.json else _print(facts)
    return 1 if unread or differing else 0


def _answer(pipe: Pipe, request: Request, timeout: float) -> Answer:
    own = snapshot(request)  # what one pipeline writes into an array, the other one does not see
    start = time.perf_counter()
    try:
        result = pipe(own, timeout=timeout)["result"]
    except Exception as error:
        result = error
    return Answer(result, time.perf_counter() - start)


def _print(facts: dict[str, Any]) -> None:
    rows = [
        [name.upper(), str(facts[f"{name}_failed"]), *(figure(ms) for ms in facts["ms"][name].values())]
        for name in ("a", "b")
    ]
    print_table(rows, ["pipeline", "failed", "p50 ms", "p90 ms", "p99 ms"])
    print(
        f"\n{facts['differ']} of {facts['compared']} answers differ by more than the tolerance; "
        f"numbers differ by at most {figure(facts['largest_difference'])}"
    )
    for each in facts["differing"][:MAX_SHOWN]:
        print(f"  {each['input']}: {each['reason'] or figure(each['excess']) + ' times the tolerance'}")
    if len(facts["differing"]) > MAX_SHOWN:
        print(f"  and {len(facts['differing']) - MAX_SHOWN} more")
