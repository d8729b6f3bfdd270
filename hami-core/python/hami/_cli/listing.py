"""The commands `hami backends`, `hami plugins` and `hami version`."""

from __future__ import annotations

import argparse
import fnmatch
from typing import Any

from hami import _core
from hami._cli.main import report
from hami._cli.show import aligned, json_of
from hami._cli.terminal import print_table
from hami._errors import Error
from hami._plugins.lookup import devices
from hami._plugins.manager import installed
from hami._plugins.records import BackendInfo, PluginRecord, info_of
from hami._plugins.source_summaries import summaries
from hami._text import printable


def backends(arguments: argparse.Namespace) -> int:
    """List every backend; with a pattern, load and describe the backends that match it."""
    infos = installed.backends()
    if arguments.pattern is None:
        if arguments.json:
            print(json_of([info._asdict() for info in infos.values()]))
        else:
            from_source = _summaries()
            print_table([_backend_row(info, from_source) for info in infos.values()])
        return 0
    distribution, separator, name = arguments.pattern.partition("::")
    if separator:
        return _print([info_of(installed.find(name, distribution))], arguments)
    names = [name for name, info in infos.items() if fnmatch.filter([name, *(info.aliases or [])], arguments.pattern)]
    if not names:
        if arguments.pattern not in infos:
            installed.find(arguments.pattern)  # raises an error with similar names, or with the package to install
        names = [arguments.pattern]
    found, failed = _describe(names, infos)
    _print(found, arguments)
    return 1 if failed else 0


def _backend_row(info: BackendInfo, from_source: dict[str, str]) -> list[str]:
    text = _first_line(info.doc)
    if info.params is None:  # not loaded
        text = from_source.get(info.name, f"(for a description run: hami backends {info.name})")
    return [info.name, info.owner or "(this process)", text]


def _summaries() -> dict[str, str]:
    """Return what the backends of plugins that are not loaded do, from their sources."""
    found: dict[str, str] = {}
    for plugin in installed.index().plugins:
        if plugin.state == "not loaded":
            found |= summaries(plugin)
    return found


def _print(found: list[BackendInfo], arguments: argparse.Namespace) -> int:
    if arguments.json:
        print(json_of([info._asdict() for info in found]))
    else:
        print("\n\n".join(_description(info) for info in found))
    return 0


def _describe(names: list[str], infos: dict[str, BackendInfo]) -> tuple[list[BackendInfo], int]:
    """Load backends; return their descriptions, and the number of backends that cannot be loaded."""
    found, failed = [], 0
    for name in names:
        try:
            if name not in infos or infos[name].params is None:
                installed.find(name)
            found.append(installed.backends()[name])
        except Error as error:
            report(error)
            failed += 1
    return found, failed


def _description(info: BackendInfo) -> str:
    facts = [info.owner or "this process", f"thread {info.thread}"]
    facts += ["non-blocking"] if info.non_blocking else []
    facts += ["lightweight"] if info.lightweight else []
    facts += [f"range {info.range}"] if info.range else []
    facts += [f"also {' and '.join(info.aliases)}"] if info.aliases else []
    head = f"{info.name}{info.brackets or ''}  ({', '.join(facts)})"
    rows = [[f"  {param['text']}", _meaning(param)] for param in info.params or []]
    doc = [f"  {line}".rstrip() for line in (info.doc or "").splitlines()]
    return "\n".join([head, *doc, *aligned(rows)])


def _meaning(param: dict[str, Any]) -> str:
    return "; ".join(filter(None, [param["help"], *(f"also spelled {alias}" for alias in param["aliases"])]))


def _first_line(text: str | None) -> str:
    return text.splitlines()[0] if text else ""


def plugins(arguments: argparse.Namespace) -> int:
    """List every plugin; return 1 if a plugin has failed or is incompatible."""
    records = installed.records(load=arguments.load)
    if arguments.json:
        print(json_of([record._asdict() for record in records]))
    elif records:
        print_table(
            [_row(record) for record in records], ["plugin", "package", "version", "abi", "cores", "state", "time", ""]
        )
        for name, owners in installed.pipelines().items():
            print(f"pipeline {name} from {' and '.join(pipeline.distribution for pipeline in owners)}")
        for name, text in devices() if arguments.load else ():
            print(f"device {printable(name)}: {printable(text)}")
    else:
        print("no plugins are installed; to install the first one: pip install hami-onnx")
    return 1 if any(record.state in ("failed", "incompatible") for record in records) else 0


def _row(record: PluginRecord) -> list[str]:
    load_time = "" if record.seconds is None else f"{record.seconds * 1000:.0f} ms"
    cores = f"since {record.since}" if record.since else ""
    error = [f"{'it ' if record.state == 'incompatible' else ''}{record.error}"] if record.error else []
    remark = "; ".join([*error, *record.remarks])
    return [
        record.plugin,
        record.distribution,
        record.version,
        record.abi or "",
        cores,
        record.state,
        load_time,
        remark,
    ]


def version(arguments: argparse.Namespace) -> int:
    """Print the version of the core."""
    if arguments.json:
        print(json_of({"hami-core": _core.__version__}))
    else:
        print(f"hami-core {_core.__version__}")
    return 0
