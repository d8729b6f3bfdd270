"""The entry point of the command line `hami`. The module of a command is imported when the command runs."""

from __future__ import annotations

import argparse
import contextlib
import faulthandler
import io
import os
import select
import sys
from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from hami._cli.arguments import add_command, add_source, add_trace, add_values, count

if TYPE_CHECKING:
    from hami._plugins.records import PluginRecord

EXAMPLES = {
    "run": [
        'hami run "S[Identity,Identity]" --data "[1, 2]" --json',
        "hami run ocr page.png --stats --trace run.pftrace",
    ],
    "check": ["hami check pages.toml --set instance_num=2"],
    "backends": ["hami backends Identity", 'hami backends "*Tensor"'],
    "plugins": ["hami plugins --load"],
    "show": ["hami show detector.onnx"],
    "doctor": ["hami doctor --json"],
    "version": ["hami version"],
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return the exit status.

    0 is success, 1 an error, 2 wrong usage, 130 Ctrl-C, and 143 a run that SIGTERM ended.
    """
    _accept_any_output()
    if arguments is None:  # this process was started for the command
        _report_crashes()
    try:
        try:
            return _run_command(list(sys.argv[1:] if arguments is None else arguments))
        finally:
            sys.stdout.flush()
    except KeyboardInterrupt:
        print("interrupted by Ctrl-C", file=sys.stderr)
        return 130
    except OSError as error:  # of standard output
        if not isinstance(error, BrokenPipeError):
            report(error, "standard output")
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # for what is still in the buffer
        return 1


def _run_command(given: list[str]) -> int:
    parser, commands = _parser()
    wanted = next((word for word in given if not word.startswith("-")), "")
    if wanted not in commands.choices and not {"--version", "--include-dir", "--cmake-dir"} & set(given):
        _add_commands_of_plugins(commands, wanted)  # also to list them
        if wanted and wanted not in commands.choices and wanted == given[0]:
            parser.error(_unknown(wanted, list(commands.choices)))
    if wanted == "run":
        _add_options_of_pipelines(commands.choices["run"], given)
    parsed, rest = parser.parse_known_args(given)
    if rest and (not hasattr(parsed, "inputs") or any(word.startswith("-") and word != "-" for word in rest)):
        parser.error(f"unrecognized arguments: {' '.join(rest)}")
    if rest:  # inputs after an option, such as `hami run ocr --stats page.png`
        parsed.inputs += rest
    try:
        status = int(parsed.run(parsed) or 0)
        sys.stdout.flush()
        return status
    except Exception as error:
        if isinstance(error, BrokenPipeError) and _reader_is_gone():
            raise
        if getattr(parsed, "json", False):
            from hami._cli.show import json_of

            print(json_of({"error": str(error), "type": type(error).__name__}))
        if getattr(parsed, "traceback", False):
            import traceback

            traceback.print_exception(error)
        else:
            report(error)
        return 1


def _unknown(command: str, known: Sequence[str]) -> str:
    """Return what is wrong with a command that does not exist, and what to do."""
    from hami._plugins import catalog
    from hami._plugins.manager import installed
    from hami._text import did_you_mean

    for owner in catalog.load_local().owners("commands").get(command, ()):
        if reason := installed.why_unused(owner):
            return f'"{command}" is a command of {owner}, which {reason}'
    return f'no command is named "{command}"{did_you_mean(command, known) or "; list all: hami --help"}'


def _reader_is_gone() -> bool:
    """Return whether the reader of standard output has ended, such as head in `hami backends | head`."""
    poll = select.poll()
    try:
        poll.register(sys.stdout, 0)
    except ValueError:  # not a file, as in tests
        return False
    return bool(poll.poll(0))


def _accept_any_output() -> None:
    """Make printing safe: escape characters that the encoding lacks, and discard output to closed streams."""
    sys.stdout = sys.stdout or open(os.devnull, "w")  # noqa: SIM115 (stays open)
    sys.stderr = sys.stderr or open(os.devnull, "w")  # noqa: SIM115 (stays open)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


def _report_crashes() -> None:
    """Make a crash print the stack of every thread, unless the user has set this up, such as by PYTHONFAULTHANDLER."""
    if faulthandler.is_enabled():
        return
    with contextlib.suppress(OSError, ValueError):  # standard error has no file descriptor
        faulthandler.enable()


def report(error: BaseException, about: str = "") -> None:
    """Print an error with its notes to standard error."""
    from hami._errors import Error
    from hami._text import visible_lines

    text = str(error) if isinstance(error, (Error, OSError)) else f"{type(error).__name__}: {error}"
    notes = "".join(f"\n  {note}" for note in getattr(error, "__notes__", ()))
    print(visible_lines(f"error: {f'{about}: ' if about else ''}{text}{notes}"), file=sys.stderr)


def _parser() -> tuple[argparse.ArgumentParser, argparse._SubParsersAction[argparse.ArgumentParser]]:
    parser = argparse.ArgumentParser(
        prog="hami",
        description="Run inference pipelines, and inspect configurations, backends and plugins.",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="store_const", const=True, help="print the version and exit")
    parser.add_argument(
        "--include-dir", action="store_true", help="print the folder with the headers for native plugins"
    )
    parser.add_argument("--cmake-dir", action="store_true", help="print the hami_DIR for find_package(hami) of CMake")
    parser.set_defaults(run=lambda parsed: _without_command(parser, parsed), traceback=False)
    commands = parser.add_subparsers(title="commands", metavar="COMMAND")

    run = _add(commands, "run", "hami._cli.run:run", "run a pipeline on files, text, JSON or arrays")
    add_source(run)
    run.add_argument(
        "inputs", nargs="*", default=[], metavar="INPUT", help="file, folder of files, or - for standard input"
    )
    add_values(run)
    run.add_argument(
        "--max-values",
        type=count,
        metavar="N",
        help="print all values of arrays of at most N elements; default: 32, with --json 100,000",
    )
    run.add_argument(
        "--output", metavar="DIR", help="write larger arrays to this folder, as .npy or, if they are images, as .png"
    )
    run.add_argument("--stats", action="store_true", help="print the statistics of each node at the end")
    add_trace(run)

    check = _add(commands, "check", "hami._cli.check:check", "list every problem of a configuration")
    add_source(check)
    check.add_argument(
        "--invariance",
        action="store_true",
        help="run each model, and compare rows alone and in batches",
    )

    backends = _add(
        commands, "backends", "hami._cli.listing:backends", "list backends, or describe the backends that match a name"
    )
    backends.add_argument(
        "pattern",
        nargs="?",
        metavar="NAME",
        help="name, package::name, or pattern with *; the matching backends are loaded",
    )

    plugins = _add(commands, "plugins", "hami._cli.listing:plugins", "list plugins and their state")
    plugins.add_argument("--load", action="store_true", help="import every plugin and its backends first")

    show = _add(commands, "show", "hami._cli.show_file:show", "describe a model file")
    show.add_argument("name", metavar="FILE", help="a file that a plugin reads; with hami-tools, also a plugin")
    show.add_argument("--providers", action="store_true", help="open a model on each provider, and show what that runs")
    _add(commands, "doctor", "hami._cli.doctor:doctor", "check this installation")
    _add(commands, "version", "hami._cli.listing:version", "print the version of the core")
    return parser, commands


def _add(
    commands: argparse._SubParsersAction[argparse.ArgumentParser], name: str, place: str, text: str
) -> argparse.ArgumentParser:
    return add_command(commands, name, place, text, examples=EXAMPLES.get(name, ()))


def all_commands() -> tuple[argparse.ArgumentParser, dict[str, argparse.ArgumentParser]]:
    """Return the parser of `hami` and those of every command by name, with the commands of plugins."""
    parser, commands = _parser()
    _add_commands_of_plugins(commands, "")
    return parser, dict(commands.choices)


def _without_command(parser: argparse.ArgumentParser, parsed: argparse.Namespace) -> int:
    if parsed.version:
        from hami import _core

        print(f"hami-core {_core.__version__}")
        return 0
    if parsed.include_dir or parsed.cmake_dir:
        from hami.native import cmake_dir, get_include

        print(get_include() if parsed.include_dir else cmake_dir())
        return 0
    parser.print_help()
    return 2


class _CommandsOfPlugin:
    """The sub-parsers to which a plugin adds its commands. A command whose name is taken is called PLUGIN-NAME."""

    def __init__(self, commands: argparse._SubParsersAction[argparse.ArgumentParser], distribution: str) -> None:
        self.choices = commands.choices
        self._commands = commands
        self._distribution = distribution
        self._plugin = distribution.removeprefix("hami-")

    def add_parser(self, name: str, **settings: Any) -> argparse.ArgumentParser:
        if "help" in settings:
            settings["help"] += f" ({self._distribution})"
        return self._commands.add_parser(f"{self._plugin}-{name}" if name in self.choices else name, **settings)


def _add_commands_of_plugins(commands: argparse._SubParsersAction[argparse.ArgumentParser], wanted: str) -> None:
    """Add the commands of the plugin that has `wanted`, without loading others, or those of every plugin."""
    from hami._plugins.catalog import first_party
    from hami._plugins.manager import installed

    owners = first_party().owners("commands").get(wanted, [])
    _add_commands_of(commands, owners)
    if wanted not in commands.choices:
        others = {plugin.distribution for plugin in installed.index().plugins}.difference(owners)
        _add_commands_of(commands, others)


def _add_options_of_pipelines(run: argparse.ArgumentParser, given: list[str]) -> None:
    """Let the plugin of a packaged pipeline that is named add options to `hami run`, or run it itself."""
    from hami._plugins.manager import installed

    pipelines = installed.pipelines()
    owners = {each.distribution for word in given for each in pipelines.get(word.rpartition("::")[2], ())}
    for plugin, add in installed.hook("hami_run_options", owners):
        _add_from(plugin, "options of hami run", partial(add, parser=run))


def _add_commands_of(
    commands: argparse._SubParsersAction[argparse.ArgumentParser], distributions: Collection[str]
) -> None:
    from hami._plugins.manager import installed

    for plugin, add in installed.hook("hami_commands", distributions):
        subparsers = _CommandsOfPlugin(commands, plugin.distribution)
        _add_from(plugin, "commands", partial(add, subparsers=subparsers))


def _add_from(plugin: PluginRecord, what: str, add: Callable[[], None]) -> None:
    from hami._errors import PluginError
    from hami._plugins.messages import describe_exception

    try:
        add()
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # a plugin may even call sys.exit
        report(PluginError(describe_exception(error)), f"{what} of {plugin.distribution} {plugin.version}")
