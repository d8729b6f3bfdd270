"""The command `hami tune`: searches settings with which a pipeline completes more requests."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import hami.config
from hami import ConfigError, Pipe
from hami.cli import json_of, print_lines, print_table, printable
from hami.config import is_pipeline
from hami.progress import Progress

from hami_tools.bench.load import Load
from hami_tools.figures import figure
from hami_tools.measured import built, check_outputs, check_some_input_runs, config_of, readable_inputs
from hami_tools.tune.parameters import Settings, as_text, parameters_of
from hami_tools.tune.search import Step, Trial, Tuning, search, seconds_of_a_measurement


def tune(arguments: argparse.Namespace) -> int:
    """Search, print what each change gains, and the lines for the configuration."""
    check_outputs(arguments, "output")
    inputs, unread = readable_inputs(arguments)
    description = hami.config.describe(config_of(arguments.source, arguments))
    parameters = parameters_of(description, arguments.slo, arguments.clients)
    if not parameters:
        raise ConfigError(f"no node of {printable(arguments.source)} has settings that hami tune can change")

    def build(settings: Settings) -> Pipe:
        given = [f"{node}.{key}={as_text((node, key), value)}" for (node, key), value in settings.items()]
        return built(arguments.source, arguments, given)

    with build({}) as pipe:
        check_some_input_runs(pipe, inputs)
    seconds = seconds_of_a_measurement(arguments.time)
    requests = [request for _, request in inputs]
    trial = Trial(build, requests, Load(clients=arguments.clients), arguments.slo, seconds)
    with Progress(1.0, "tuning") as progress:
        found = search(trial, parameters, arguments.time, lambda text: progress.update(0.0, text))
    lines = list(_toml_lines(found.settings))
    if arguments.json:
        print(json_of(_as_dict(found, lines)))
    else:
        _print(found, lines)
    if arguments.output:
        Path(arguments.output).write_text("\n".join([*_file_lines(arguments, lines), ""]), encoding="utf-8")
    return 1 if unread else 0


def _toml_lines(settings: Settings) -> Iterator[str]:
    """Yield the lines of a configuration with these settings."""
    for name in dict.fromkeys(node for node, _ in settings):
        yield f"[{name}]"
        yield from (f"{key} = {as_text((node, key), value)}" for (node, key), value in settings.items() if node == name)


def _file_lines(arguments: argparse.Namespace, lines: list[str]) -> Iterator[str]:
    """Yield the lines of a source of its own: it extends SOURCE, or contains it if it is an expression."""
    yield f"# Written by hami tune{''.join(f' --set {json.dumps(setting)}' for setting in arguments.set)}."
    source = arguments.source
    if path := hami.config.model_file(source):
        keys = hami.config.model_keys(os.path.abspath(path))
        yield from (
            lines[0] if lines else "[default]",
            *(f"{key} = {json.dumps(keys[key])}" for key in keys),
            *lines[1:],
        )
    elif os.path.isfile(source):
        place = os.path.relpath(source, os.path.dirname(os.path.abspath(arguments.output)))
        yield from (f"extends = {json.dumps(place)}", "", *lines)
    elif is_pipeline(source):
        yield from (f"extends = {json.dumps(source)}", "", *lines)
    else:
        yield from (lines[0] if lines else "[default]", f"backend = {json.dumps(source)}", *lines[1:])


def _rows(found: Tuning) -> Iterator[list[str]]:
    for step in found.steps:
        yield [_change(step), _percent(step.ratio)]
    if found.steps:
        yield ["together", _percent(found.ratio)]


def _change(step: Step) -> str:
    return ", ".join(
        f"{node}.{key} {as_text((node, key), before)} -> {as_text((node, key), after)}"
        for (node, key), (before, after) in step.changes.items()
    )


def _percent(ratio: float) -> str:
    return f"{ratio - 1:+.1%}"


def _print(found: Tuning, lines: list[str]) -> None:
    print_lines(f"cannot be built: {text}" for text in found.failed)
    if not found.steps:
        print(f"no change gains; {figure(found.after)} requests per second after {found.trials} trials")
    else:
        print_table(list(_rows(found)), ["change", "gain"])
        print(f"\nrequests per second: {figure(found.before)} -> {figure(found.after)}, {found.trials} trials")
        print("\n" + "\n".join(lines))
    if not found.complete:
        print_lines(["\nThe time ended before every change was tried; --time gives it more."])


def _as_dict(found: Tuning, lines: list[str]) -> dict[str, Any]:
    return {
        "steps": [
            {
                "changes": [
                    {"node": node, "key": key, "before": before, "after": after}
                    for (node, key), (before, after) in step.changes.items()
                ],
                "ratio": step.ratio,
            }
            for step in found.steps
        ],
        "before": found.before,
        "after": found.after,
        "ratio": found.ratio,
        "trials": found.trials,
        "failed": found.failed,
        "complete": found.complete,
        "toml": lines,
    }
