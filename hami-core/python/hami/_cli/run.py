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
from hami._cli.main import report
from hami._cli.show import json_of, lines_of
from hami._cli.source import read_source
from hami._cli.terminal import print_table
from hami._errors import ConfigError, RequestError
from hami._plugins.messages import describe_exception
from hami.progress import Progress

AHEAD = 4 * (os.cpu_count() or 1)  # requests under way at once: every instance has work, few files lie in memory
FEW = 3  # up to so many inputs need no progress bar


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
    with hami.pipe(config) as pipe, Progress(len(inputs), enabled=len(inputs) > FEW) as progress:
        for entry, outcome in _outcomes(pipe, inputs):
            progress.clear()
            if not isinstance(outcome, BaseException):
                outcome = _shown(entry, outcome, arguments, several=len(inputs) > 1)
            if isinstance(outcome, BaseException):
                failed += 1
                _show_failure(entry, outcome, arguments)
            else:
                print(outcome)
            progress.advance()
        if arguments.stats:
            counted = pipe.stats()
            _show_stats({name: counted[name].as_dict() for name in config.nodes if name in counted}, arguments)
    return 1 if failed else 0


def _inputs(arguments: argparse.Namespace) -> Iterator[Input]:
    for text in arguments.text:
        yield Input("--text", text)
    for data in arguments.data:
        try:
            yield Input("--data", json.loads(data))
        except ValueError as error:
            raise ConfigError(f"--data takes JSON, --text any text: {error}") from None
    for name in arguments.inputs:
        path = Path(name)
        if name == "-":
            if sys.stdin is None:
                raise ConfigError("standard input, which - stands for, is closed")
            yield Input("standard input", sys.stdin.buffer.read())
        elif path.is_dir():
            files = sorted(file for file in path.iterdir() if file.is_file() and not file.name.startswith("."))
            if not files:
                raise ConfigError(f'the folder "{name}" has no files')
            yield from (Input(str(file), path=file) for file in files)
        else:
            yield Input(name, path=path)
    if not (arguments.text or arguments.data or arguments.inputs):
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
        yield entry, started if isinstance(started, BaseException) else _wait(started)


def _start(pipe: Any, entry: Input) -> Any:
    try:
        return pipe.submit(entry.request())
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # a file that cannot be read, a queue that is full
        return error


def _wait(future: Any) -> Any:
    try:
        return future.result()
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # a backend may raise anything
        return error


def _show_failure(entry: Input, error: BaseException, arguments: argparse.Namespace) -> None:
    if arguments.traceback:
        import traceback

        traceback.print_exception(error)
    if arguments.json:
        print(json_of({"input": entry.label, "error": str(error), "type": type(error).__name__}))
    report(error, entry.label)


def _shown(entry: Input, request: dict[str, Any], arguments: argparse.Namespace, *, several: bool) -> str | Exception:
    """Return the text of a result, or why it has none."""
    try:
        if arguments.json:
            return json_of({"input": entry.label, "result": request["result"]})
        lines = lines_of(request["result"])
    except Exception as error:  # a list that holds itself
        failure = RequestError(f"its result cannot be shown: {describe_exception(error)}")
        failure.__cause__ = error
        return failure
    return "\n".join([f"{entry.label}:", *(f"  {line}" for line in lines)] if several else lines)


def _show_stats(stats: dict[str, dict[str, Any]], arguments: argparse.Namespace) -> None:
    if arguments.json:
        print(json_of({"stats": stats}))
        return
    columns = list(dict.fromkeys(key for counters in stats.values() for key in counters))
    rows = [[node, *(_number(counters.get(column, "")) for column in columns)] for node, counters in stats.items()]
    print()
    print_table(rows, ["node", *(column.replace("_", " ") for column in columns)])


def _number(value: Any) -> str:
    return f"{value:.1f}" if isinstance(value, float) else str(value)
