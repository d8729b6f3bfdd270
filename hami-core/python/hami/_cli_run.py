"""The command `hami run`: a pipeline over files, text or JSON."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import hami
from hami._cli import report
from hami._cli_source import read_source
from hami._errors import ConfigError, RequestError
from hami._show import lines_of, to_json
from hami._terminal import Progress, print_table

AHEAD = 4 * (os.cpu_count() or 1)  # requests under way at once: every instance has work, few files lie in memory


class Input:
    """One request to be: what to call it, and where its `data` comes from."""

    def __init__(self, label: str, data: Any = None, path: Path | None = None) -> None:
        self.label = label
        self._data = data
        self._path = path

    def request(self) -> dict[str, Any]:
        """Return the request; reads the file now."""
        if self._path is None:
            return {"data": self._data}
        try:
            return {"data": self._path.read_bytes()}
        except OSError as error:
            raise RequestError(f"cannot be read: {error.strerror}") from error


def run(arguments: argparse.Namespace) -> int:
    """Run the pipeline on every input and print each result in order; return 1 if one failed."""
    inputs = list(_inputs(arguments))
    config, problems = read_source(arguments.source, arguments.set, arguments.imports)
    if problems:
        raise ConfigError.of(problems)
    failed = 0
    with hami.pipe(config) as pipe, Progress(len(inputs)) as progress:
        for entry, outcome in _outcomes(pipe, inputs):
            progress.clear()
            if isinstance(outcome, BaseException):
                failed += 1
                _show_failure(entry, outcome, arguments)
            else:
                _show_result(entry, outcome, arguments, several=len(inputs) > 1)
            progress.advance()
        if arguments.stats:
            counted = pipe.stats()
            _show_stats({name: counted[name] for name in config.nodes if name in counted}, arguments)
    return 1 if failed else 0


def _inputs(arguments: argparse.Namespace) -> Iterator[Input]:
    if arguments.text is not None:
        yield Input("--text", arguments.text)
    if arguments.data is not None:
        try:
            yield Input("--data", json.loads(arguments.data))
        except ValueError as error:
            raise ConfigError(f"--data takes JSON, --text any text: {error}") from None
    for name in arguments.inputs:
        path = Path(name)
        if name == "-":
            yield Input("standard input", sys.stdin.buffer.read())
        elif path.is_dir():
            files = sorted(file for file in path.iterdir() if file.is_file() and not file.name.startswith("."))
            if not files:
                raise ConfigError(f'the folder "{name}" has no files')
            yield from (Input(str(file), path=file) for file in files)
        else:
            yield Input(name, path=path)
    if arguments.text is None and arguments.data is None and not arguments.inputs:
        raise ConfigError("nothing to run on: give a file, a folder, - for standard input, --text or --data")


def _outcomes(pipe: Any, inputs: list[Input]) -> Iterator[tuple[Input, Any]]:
    """Yield every input with its request or its exception, in order; several run at once."""
    waiting = iter(inputs)
    running: deque[tuple[Input, Any]] = deque()
    while True:
        while len(running) < AHEAD and (entry := next(waiting, None)) is not None:
            running.append((entry, _start(pipe, entry)))
        if not running:
            return
        entry, started = running.popleft()
        yield entry, started if isinstance(started, Exception) else _wait(started)


def _start(pipe: Any, entry: Input) -> Any:
    try:
        return pipe.submit(entry.request())
    except Exception as error:  # a file that cannot be read, a queue that is full
        return error


def _wait(future: Any) -> Any:
    try:
        return future.result()
    except Exception as error:
        return error


def _show_failure(entry: Input, error: BaseException, arguments: argparse.Namespace) -> None:
    if arguments.traceback:
        import traceback

        traceback.print_exception(error)
    elif arguments.json:
        print(json.dumps({"input": entry.label, "error": str(error), "type": type(error).__name__}))
    report(error, entry.label)


def _show_result(entry: Input, request: dict[str, Any], arguments: argparse.Namespace, *, several: bool) -> None:
    if arguments.json:
        print(json.dumps({"input": entry.label, "result": request["result"]}, default=to_json))
        return
    if several:
        print(f"{entry.label}:")
    indent = "  " if several else ""
    print("\n".join(f"{indent}{line}" for line in lines_of(request["result"])))


def _show_stats(stats: dict[str, dict[str, Any]], arguments: argparse.Namespace) -> None:
    if arguments.json:
        print(json.dumps({"stats": stats}))
        return
    columns = list(dict.fromkeys(key for counters in stats.values() for key in counters))
    rows = [[node, *(_number(counters.get(column, "")) for column in columns)] for node, counters in stats.items()]
    print()
    print_table(rows, ["node", *(column.replace("_", " ") for column in columns)])


def _number(value: Any) -> str:
    return f"{value:.1f}" if isinstance(value, float) else str(value)
