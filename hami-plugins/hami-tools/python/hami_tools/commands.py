"""Declares the commands and their arguments. The module of a command is imported when the command runs."""

from __future__ import annotations

import argparse
from typing import Any

from hami.cli import add_command, add_inputs, add_source, positive, seconds

from hami_tools.benchmark_commands import add_benchmark_commands
from hami_tools.bundle_commands import add_bundle_commands
from hami_tools.package_commands import add_lock_commands, add_package_commands


def add_commands(commands: Any) -> None:
    """Add every command of this package."""
    _add_graph(commands)
    top = add_command(
        commands,
        "top",
        "hami_tools.top:top",
        "show what the pipes of a running process do",
        examples=["hami top 1234", "hami top 1234 --once --json"],
    )
    top.add_argument("pid", nargs="?", type=positive, metavar="PID", help="process; without it, list the processes")
    top.add_argument("--once", action="store_true", help="print the figures of one interval and exit")
    top.add_argument("--interval", type=seconds, default=1.0, metavar="TIME", help="time between figures; default: 1s")

    add_benchmark_commands(commands)

    trace = add_command(
        commands,
        "trace",
        "hami_tools.trace.command:trace",
        "convert a timeline for other tools",
        examples=["hami trace convert run.pftrace --chrome run.json"],
    )
    trace.add_argument("action", choices=("convert",), help="what to do")
    trace.add_argument("file", metavar="FILE", help="a timeline, from --trace or pipe.trace")
    trace.add_argument("--chrome", metavar="OUT", help="write JSON in the trace event format of Chrome to OUT")
    trace.add_argument(
        "--tensorboard", metavar="DIR", help="write scalars, histograms and a trace for TensorBoard to the folder DIR"
    )
    trace.add_argument(
        "--profile",
        action="append",
        default=[],
        metavar="FILE",
        help="add the operators in the profile of an engine, such as that of OnnxTensor; repeatable",
    )

    shown = add_command(
        commands,
        "show-config",
        "hami_tools.show_config:show_config",
        "show the effective configuration, with the source of every value",
        examples=["hami show-config pages.toml --set instance_num=2"],
    )
    add_source(shown)

    schema = add_command(
        commands,
        "schema",
        "hami_tools.schema:schema",
        "print a JSON schema of configuration files, for editors",
        examples=["hami schema --output hami.schema.json"],
    )
    schema.add_argument("--output", metavar="FILE", help="write the schema to this file")

    add_command(
        commands,
        "info",
        "hami_tools.info:info",
        "show the machine, its limits, GPUs and engines",
        examples=["hami info --json"],
    )

    completion = add_command(
        commands,
        "completion",
        "hami_tools.completion:completion",
        "print a script that completes commands in a shell",
        examples=[
            'eval "$(hami completion bash)"',
            "hami completion fish > ~/.config/fish/completions/hami.fish",
        ],
    )
    completion.add_argument("shell", choices=("bash", "zsh", "fish"), help="the shell")
    add_package_commands(commands)
    add_lock_commands(commands)
    add_bundle_commands(commands)
    _add_new_plugin(commands)


def _add_graph(commands: Any) -> None:
    graph = add_command(
        commands,
        "graph",
        "hami_tools.graph.command:graph",
        "show the nodes and edges of a pipeline, or the layers of a model file",
        examples=[
            "hami graph model.onnx --format html --output model.html",
            'hami graph "S[Identity,Identity]" --format html --output pipeline.html',
            "hami graph pages.toml --input page.png --stats result.json",
            "hami graph --live 1234 --format html --output now.html",
        ],
    )
    add_source(graph, required=False)
    graph.add_argument(
        "--format",
        choices=("text", "mermaid", "dot", "svg", "html"),
        default="text",
        help="text (default), mermaid, dot, svg, or html: a page in one file",
    )
    add_inputs(graph)
    graph.add_argument("--output", metavar="FILE", help="write to this file")
    graph.add_argument(
        "--stats", metavar="FILE", help="show the numbers in FILE, from hami run --json --stats or hami bench --output"
    )
    graph.add_argument(
        "--live",
        metavar="PID",
        help="instead of SOURCE: show the pipe of a running process, with its numbers; PID:2 is its second pipe",
    )
    graph.add_argument(
        "--layers",
        action=argparse.BooleanOptionalAction,
        help="show the layers of a model file, folded by module: the default where a plugin can, unless another option "
        "is about its node; or its node",
    )
    graph.add_argument(
        "--diff", metavar="OTHER", help="show what changes from SOURCE to OTHER; the exit status is 1 if they differ"
    )


def _add_new_plugin(commands: Any) -> None:
    new = add_command(
        commands,
        "new-plugin",
        "hami_tools.new_plugin:new_plugin",
        "write a new plugin project",
        examples=["hami new-plugin acme-resize --cpp", "hami new-plugin acme-best --pipeline"],
    )
    new.add_argument("name", metavar="NAME", help="name of the distribution, such as acme-resize")
    kind = new.add_mutually_exclusive_group()
    kind.add_argument(
        "--python",
        action="store_const",
        dest="kind",
        const="python",
        default="python",
        help="a plugin in Python (default)",
    )
    for option, text in (
        ("cpp", "a native plugin in C++"),
        ("cuda", "a native plugin in C++ with a CUDA kernel"),
        ("torch", "a plugin in Python that runs a torch module"),
        ("pipeline", "a packaged pipeline of backends that other plugins provide"),
    ):
        kind.add_argument(f"--{option}", action="store_const", dest="kind", const=option, help=text)
    new.add_argument(
        "--backend",
        metavar="NAME",
        default="",
        help="name of its backend; by default derived from the name of the distribution",
    )
    new.add_argument("--folder", metavar="FOLDER", help="new folder for the project; by default ./NAME")
