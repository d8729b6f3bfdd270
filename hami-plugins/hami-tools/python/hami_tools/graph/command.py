"""The command `hami graph`: shows the nodes and edges of a pipeline, or the layers of a model file.

Only inputs make it build and run the pipe.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import hami.config
from hami import ConfigError
from hami.cli import describe_file, json_of, lines_of_file, printable
from hami.config import read_source
from hami.observe.description import PipeDescription

from hami_tools.graph import Graph


def graph(arguments: argparse.Namespace) -> int:
    """Print the graph, or write it to a file; with --diff return 1 if the two graphs differ."""
    if (arguments.source is None) == (arguments.live is None):
        raise ConfigError("hami graph takes a SOURCE, or --live PID")
    of_pipe = [
        *(arguments.live, arguments.diff, arguments.stats, arguments.set),
        *(arguments.inputs, arguments.text, arguments.data),
    ]
    if arguments.layers and any(of_pipe):
        raise ConfigError("--layers shows a model file, without --live, --diff, --stats, --set and inputs")
    if arguments.layers or (arguments.layers is None and not any(of_pipe) and hami.config.model_file(arguments.source)):
        layers = _layers(arguments.source, needed=bool(arguments.layers))
        if layers is not None:
            shown = Graph.from_layers(layers)
            _write(json_of(layers) if arguments.json else _rendered(shown, arguments), arguments.output)
            return 0
    description, stats = _live(arguments.live) if arguments.live else (_describe(arguments.source, arguments), None)
    if arguments.stats:
        stats = _read_stats(arguments.stats)
    sizes = None
    if arguments.inputs or arguments.text or arguments.data:
        if arguments.live:
            raise ConfigError("--input, --text and --data run a SOURCE; leave them out with --live")
        from hami_tools.graph.sizes import measure_sizes

        sizes = measure_sizes(arguments)
    shown = Graph.from_description(description, stats, sizes)
    status = 0
    if arguments.diff is not None:
        shown = shown.compare(Graph.from_description(_describe(arguments.diff, arguments)))
        status = 1 if shown.differs else 0
    if arguments.json:
        text = json_of(description)
    else:
        text = _rendered(shown, arguments) if arguments.diff is None else shown.render(arguments.format)
    _write(text, arguments.output)
    return status


def _layers(source: str, needed: bool) -> dict[str, Any] | None:
    """Return the layers of a model file, as the plugin of its engine describes them; None if they are not needed."""
    try:
        found = describe_file(source, "hami_model_layers")
    except Exception:
        if needed:
            raise
        return None
    layers = next((each for each in found.values() if "nodes" in each), None)
    if layers is not None or not needed:
        return layers
    if not found:
        raise ConfigError(f"no installed plugin shows the layers of {printable(source)}; hami-onnx does of .onnx")
    reasons = "; ".join(f"{name}: {each.get('error', 'it gives no nodes')}" for name, each in found.items())
    raise ConfigError(f"no plugin can show the layers of {printable(source)}: {reasons}")


def _rendered(shown: Graph, arguments: argparse.Namespace) -> str:
    """Return a graph in the format that is asked for, as text with what `hami show` prints of a model file."""
    text = shown.render(arguments.format)
    return "\n".join([text, *_facts(arguments.source)]) if arguments.format == "text" else text


def _write(text: str, output: str | None) -> None:
    if output is None:
        print(text)
    else:
        Path(output).write_text(text + "\n", encoding="utf-8")


def _facts(source: str | None) -> list[str]:
    """Return the lines of `hami show`, if the source is a model file."""
    return lines_of_file(source, describe_file(source)) if source and hami.config.model_file(source) else []


def _describe(source: str, arguments: argparse.Namespace) -> PipeDescription:
    config, problems = read_source(source, arguments.set, arguments.imports)
    if problems:
        raise ConfigError.of(problems)
    return hami.config.describe(config)


def _live(place: str) -> tuple[PipeDescription, Mapping[str, Any]]:
    """Return the description and the statistics of the pipe of a running process, given as PID or PID:NUMBER."""
    from hami_tools.live import read

    pid, _, number = place.partition(":")
    if not pid.isdecimal() or not (number or "1").isdecimal():
        raise ConfigError(f'--live takes a process number such as 123, or 123:2 for its second pipe; got "{place}"')
    pipes = read(int(pid))
    if not number and len(pipes) > 1:
        raise ConfigError(f"process {pid} has {len(pipes)} pipes; choose one with --live {pid}:1 to {pid}:{len(pipes)}")
    if not 1 <= int(number or 1) <= len(pipes):
        raise ConfigError(f"process {pid} has {len(pipes)} pipes; there is no pipe {number}")
    pipe = pipes[int(number or 1) - 1]
    return pipe.description, pipe.stats


def _read_stats(path: str) -> dict[str, Any]:
    """Return the last statistics in a file of JSON lines, such as `hami run --json --stats` prints."""
    found = None
    for line in Path(path).read_text(encoding="utf-8").splitlines():
        try:
            value = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(value, dict) and isinstance(value.get("stats"), dict):
            found = value["stats"]
    if found is None:
        raise ConfigError(
            f'"{printable(path)}" has no line with "stats"; write it with hami run SOURCE … --json --stats > FILE, '
            "or with hami bench SOURCE … --output FILE"
        )
    return {name: values for name, values in found.items() if isinstance(values, dict)}
