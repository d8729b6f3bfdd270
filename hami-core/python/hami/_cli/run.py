"""The command `hami run`: runs a pipeline on files, text or JSON."""

from __future__ import annotations

import argparse
import os
import signal
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import closing
from functools import partial
from itertools import takewhile
from pathlib import Path
from typing import Any

import hami
from hami._cli.arrays import ArrayWriter
from hami._cli.inputs import Input, inputs_of
from hami._cli.main import report
from hami._cli.show import SMALL, json_of, lines_of
from hami._cli.source import read_source, require_node, traced
from hami._cli.terminal import print_table
from hami._errors import ConfigError, RequestError
from hami._plugins.messages import describe_exception
from hami._runtime.iterators import started_in_order
from hami._runtime.pipe import Pipe
from hami.observe.node_stats import rounded
from hami.progress import Progress

MAX_OUTSTANDING = 4 * (os.cpu_count() or 1)  # keeps every instance busy with few files in memory
MIN_TOTAL = 4  # inputs; fewer need no progress bar
SMALL_IN_JSON = 100_000  # elements of an array; the default of --max-values with --json


class Sigterm:
    """While requests run, the first SIGTERM only sets `received`. The next one ends the process, as usual.

    A handler of the program or of a backend, and a SIGTERM that is ignored, stay as they are.
    """

    def __init__(self) -> None:
        self.received = False

    def __enter__(self) -> Sigterm:
        in_main_thread = threading.current_thread() is threading.main_thread()
        if in_main_thread and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
            signal.signal(signal.SIGTERM, self._note)
        return self

    def __exit__(self, *_: object) -> None:
        if signal.getsignal(signal.SIGTERM) == self._note:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)

    def _note(self, *_: object) -> None:
        self.received = True
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def run(arguments: argparse.Namespace) -> int:
    """Run the pipeline on every input and print the results in order.

    Return 1 if a request failed, and 143 if SIGTERM ended the run: the requests that run are completed and printed.
    """
    inputs = list(inputs_of(arguments))
    config, problems = read_source(arguments.source, arguments.set, arguments.imports)
    if problems:
        raise ConfigError.of(problems)
    require_node(config, arguments)
    max_values = arguments.max_values
    if max_values is None:
        max_values = SMALL_IN_JSON if arguments.json else SMALL
    writer = ArrayWriter(max_values, Path(arguments.output) if arguments.output else None)
    done, failed = 0, 0
    progress = Progress(len(inputs), enabled=len(inputs) >= MIN_TOTAL)
    with hami.pipe(config) as pipe, traced(pipe, arguments), progress, Sigterm() as sigterm:
        waiting = takewhile(lambda _: not sigterm.received, inputs)
        with closing(started_in_order(waiting, partial(_start, pipe), MAX_OUTSTANDING)) as started:
            for entry, future in started:
                outcome = _outcome_of(future)
                progress.clear()
                if not isinstance(outcome, BaseException):
                    outcome = _result_text(entry, outcome, arguments, writer, several=len(inputs) > 1)
                if isinstance(outcome, BaseException):
                    failed += 1
                    _print_failure(entry, outcome, arguments)
                else:
                    print(outcome)
                sys.stdout.flush()  # a process that is killed has printed what was done
                done += 1
                progress.advance()
        if arguments.stats:
            stats = pipe.stats()
            _print_stats({name: stats[name].as_dict() for name in config.nodes if name in stats}, arguments)
            sys.stdout.flush()
    if sigterm.received:
        print(f"ended by SIGTERM: {done} of {len(inputs)} inputs are done", file=sys.stderr)
        return 143
    return 1 if failed else 0


def _start(pipe: Pipe, entry: Input) -> Future[dict[str, Any]]:
    """Start the request of an input; what hinders that, such as a file that cannot be read, is its outcome."""
    try:
        return pipe.submit(entry.request())
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # for example a full queue
        failed: Future[dict[str, Any]] = Future()
        failed.set_exception(error)
        return failed


def _outcome_of(future: Future[dict[str, Any]]) -> Any:
    """Return the completed request, or its exception."""
    try:
        return future.result()
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # a backend may raise anything
        return error


def _print_failure(entry: Input, error: BaseException, arguments: argparse.Namespace) -> None:
    if arguments.traceback:
        import traceback

        traceback.print_exception(error)
    if arguments.json:
        print(json_of({"input": entry.label, "error": str(error), "type": type(error).__name__}))
    report(error, entry.label)


def _result_text(
    entry: Input, request: dict[str, Any], arguments: argparse.Namespace, writer: ArrayWriter, *, several: bool
) -> str | Exception:
    """Return the text of a result, or the reason why it cannot be shown."""
    try:
        result = writer.replace(request, entry.label, json=arguments.json)
        if arguments.json:
            return json_of({"input": entry.label, "result": result})
        lines = lines_of(result)
    except Exception as error:  # for example a list that contains itself
        failure = RequestError(f"the result cannot be shown: {describe_exception(error)}")
        failure.__cause__ = error
        return failure
    return "\n".join([f"{entry.label}:", *(f"  {line}" for line in lines)] if several else lines)


def _print_stats(stats: dict[str, dict[str, Any]], arguments: argparse.Namespace) -> None:
    if arguments.json:
        print(json_of({"stats": stats}))
        return
    columns = [dict(_rows(values)) for values in stats.values()]
    names = list(dict.fromkeys(name for column in columns for name in column))
    rows = [[name, *(rounded(column.get(name, "")) for column in columns)] for name in names]
    print()
    print_table(rows, ["statistic", *stats])


def _rows(values: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield the statistics of one node, with one row for each part of a histogram and each backend."""
    for name, value in values.items():
        if not isinstance(value, dict):
            yield name, value
            continue
        for part, number in value.items():
            if part != "count":
                yield f"{name} {part}", number
