"""The command line `hami`. Each command lives in a module of its own that is imported when it runs."""

from __future__ import annotations

import argparse
import importlib
import io
import os
import sys
from collections.abc import Callable, Sequence

Command = Callable[[argparse.Namespace], int]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; return what the process should exit with: 0, 1 after an error, 2 if called wrongly."""
    _take_any_output()
    given = list(sys.argv[1:] if arguments is None else arguments)
    parser, commands = _parser()
    wanted = next((word for word in given if not word.startswith("-")), None)
    if wanted is not None and wanted not in commands.choices:
        _add_commands_of_plugins(commands)
    parsed, rest = parser.parse_known_args(given)
    if rest and (not hasattr(parsed, "inputs") or any(word.startswith("-") and word != "-" for word in rest)):
        parser.error(f"unrecognized arguments: {' '.join(rest)}")
    if rest:  # inputs that follow an option, as in `hami run ocr --stats page.png`
        parsed.inputs += rest
    try:
        status = parsed.run(parsed)
        sys.stdout.flush()
        return int(status or 0)
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # the reader of our output has gone, as with `hami backends | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except Exception as error:
        if getattr(parsed, "json", False):
            from hami._cli.show import json_of

            print(json_of({"error": str(error), "type": type(error).__name__}))
        if getattr(parsed, "traceback", False):
            raise
        report(error)
        return 1


def _take_any_output() -> None:
    """Keep what is printed from ending the command: what the encoding lacks is escaped, a closed stream takes all."""
    sys.stdout = sys.stdout or open(os.devnull, "w")  # noqa: SIM115 (stays open)
    sys.stderr = sys.stderr or open(os.devnull, "w")  # noqa: SIM115 (stays open)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


def report(error: BaseException, about: str = "") -> None:
    """Print an error as text, with its notes, to standard error."""
    from hami._errors import Error

    text = str(error) if isinstance(error, (Error, OSError)) else f"{type(error).__name__}: {error}"
    notes = "".join(f"\n  {note}" for note in getattr(error, "__notes__", ()))
    print(f"error: {f'{about}: ' if about else ''}{text}{notes}", file=sys.stderr)


def _parser() -> tuple[argparse.ArgumentParser, argparse._SubParsersAction[argparse.ArgumentParser]]:
    parser = argparse.ArgumentParser(
        prog="hami",
        description="Run inference pipelines, and look at what they are made of.",
        epilog="Plugins may add commands of their own.",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="store_const", const=True, help="print the version and exit")
    parser.add_argument("--include-dir", action="store_true", help="print where the headers of native plugins are")
    parser.add_argument("--cmake-dir", action="store_true", help="print hami_DIR for CMake's find_package(hami)")
    parser.set_defaults(run=lambda parsed: _without_command(parser, parsed), traceback=False)
    commands = parser.add_subparsers(title="commands", metavar="COMMAND")

    run = _add(commands, "run", "hami._cli.run:run", "run a pipeline on files, text or JSON")
    _add_source(run)
    run.add_argument(
        "inputs", nargs="*", default=[], metavar="INPUT", help="file, folder of files, or - for standard input: `data`"
    )
    run.add_argument("--text", action="append", default=[], metavar="TEXT", help="use this text as `data`")
    run.add_argument("--data", action="append", default=[], metavar="JSON", help="use this JSON value as `data`")
    run.add_argument("--stats", action="store_true", help="print what each node did, and how long it took")

    check = _add(commands, "check", "hami._cli.check:check", "list everything that is wrong with a configuration")
    _add_source(check)

    shown = _add(
        commands,
        "show-config",
        "hami._cli.show_config:show_config",
        "show the configuration that counts, with the source of every value",
    )
    _add_source(shown)

    schema = _add(
        commands, "schema", "hami._cli.schema:schema", "write a JSON schema of configuration files for editors"
    )
    schema.add_argument("--output", metavar="FILE", help="write it to a file")

    backends = _add(commands, "backends", "hami._cli.listing:backends", "list backends, or describe those that match")
    backends.add_argument(
        "pattern", nargs="?", metavar="NAME", help="a name, or a pattern with *; loads what it matches"
    )

    plugins = _add(commands, "plugins", "hami._cli.listing:plugins", "list plugins and their state")
    plugins.add_argument("--load", action="store_true", help="import each plugin and its backends first")

    _add(commands, "doctor", "hami._cli.doctor:doctor", "look for what is wrong with this installation")
    new = _add(commands, "new-plugin", "hami._cli.new_plugin:new_plugin", "write a plugin project to begin with")
    new.add_argument("name", metavar="NAME", help="of the distribution, as in acme-resize")
    kind = new.add_mutually_exclusive_group()
    kind.add_argument("--python", action="store_const", dest="kind", const="python", default="python")
    kind.add_argument("--cpp", action="store_const", dest="kind", const="cpp", help="a native plugin in C++")
    new.add_argument("--backend", metavar="NAME", default="", help="of its backend; else made of NAME")
    new.add_argument("--folder", metavar="FOLDER", help="where to write it; else ./NAME")

    _add(commands, "version", "hami._cli.listing:version", "print the version")
    return parser, commands


def _add(
    commands: argparse._SubParsersAction[argparse.ArgumentParser], name: str, place: str, text: str
) -> argparse.ArgumentParser:
    parser = commands.add_parser(name, help=text, description=text[0].upper() + text[1:] + ".", allow_abbrev=False)
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--traceback", action="store_true", help="show where an error comes from")
    parser.set_defaults(run=_lazy(place))
    return parser


def _add_source(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("source", metavar="SOURCE", help="TOML file, name of a packaged pipeline, or expression")
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="set a key of the node, NODE.KEY of one node, or a key for all nodes",
    )
    parser.add_argument(
        "--import",
        action="append",
        default=[],
        metavar="FILE",
        dest="imports",
        help="import a Python file or module first",
    )


def _lazy(place: str) -> Command:
    def run(parsed: argparse.Namespace) -> int:
        module, _, function = place.partition(":")
        command: Command = getattr(importlib.import_module(module), function)
        return command(parsed)

    return run


def _without_command(parser: argparse.ArgumentParser, parsed: argparse.Namespace) -> int:
    if parsed.version:
        from hami import _core

        print(f"hami-core {_core.__version__}")
        return 0
    if parsed.include_dir or parsed.cmake_dir:
        from hami._plugins import native as _native

        print(_native.get_include() if parsed.include_dir else _native.cmake_dir())
        return 0
    parser.print_help()
    return 2


def _add_commands_of_plugins(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    from hami._errors import PluginError
    from hami._plugins.manager import installed
    from hami._plugins.messages import describe_exception

    for plugin, add in installed.hook("hami_commands"):
        try:
            add(subparsers=commands)
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # a plugin may even call sys.exit
            report(PluginError(describe_exception(error)), f"commands of {plugin.distribution} {plugin.version}")
