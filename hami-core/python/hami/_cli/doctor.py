"""The command `hami doctor`: what this installation consists of, and what is wrong with it."""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
from typing import Any

from hami import _core
from hami._cli.terminal import print_table
from hami._plugins import installation as _installation
from hami._plugins.manager import CORE, installed
from hami._plugins.messages import describe_exception
from hami._plugins.native_loading import shown
from hami._plugins.requires import needs_of


def doctor(arguments: argparse.Namespace) -> int:
    """Print facts and problems; return 1 if there is a problem."""
    facts, problems = facts_of_core(), _installation.problems()
    for plugin in installed.records(load=True):
        name = f"{plugin.distribution} {plugin.version}".strip()
        facts[name] = f"{plugin.state}, plugin ABI {plugin.abi}" if plugin.abi else plugin.state
        if needs := needs_of(plugin.distribution):
            facts[f"{plugin.distribution}: needs"] = needs
        if plugin.state in ("failed", "incompatible"):
            problems.append(
                f"{name} {'failed to load' if plugin.state == 'failed' else 'is incompatible'}: {plugin.error}"
            )
    reports, failures = _reports()
    facts.update(reports)
    problems += failures + problems_of_settings()
    if arguments.json:
        print(json.dumps({"facts": facts, "problems": problems}))
    else:
        print_table([[name, value] for name, value in facts.items()])
        print()
        print("\n".join(f"problem: {problem}" for problem in problems) if problems else "no problems found")
    return 1 if problems else 0


def facts_of_core() -> dict[str, str]:
    """Return the facts that a support request needs."""
    facts = {
        CORE: f"{_core.__version__}, {os.path.dirname(_core.__file__)}",
        "plugin ABI": _core.supported_abi(),
        "python": f"{platform.python_version()} {platform.python_implementation()}, {sys.executable}",
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "libc": " ".join(platform.libc_ver()).strip() or "unknown",
        "CPUs": _cpus(),
    }
    facts.update({name: value for name, value in sorted(os.environ.items()) if name.startswith("HAMI_")})
    return facts


def _cpus() -> str:
    present = os.cpu_count() or 1
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else present
    return str(present) if allowed == present else f"{allowed} of {present} allowed to this process"


def _reports() -> tuple[dict[str, str], list[str]]:
    lines: dict[str, str] = {}
    failures = []
    for plugin, report in installed.hook("hami_report"):
        try:
            for answer in report():
                lines.update({f"{plugin.distribution}: {name}": _one_line(value) for name, value in answer.items()})
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # a plugin may even call sys.exit
            failures.append(f"hami_report of {plugin.distribution} {plugin.version}: {describe_exception(error)}")
    return lines, failures


def _one_line(value: Any) -> str:
    return " ".join(str(value).split())


def problems_of_settings() -> list[str]:
    """Return what is wrong with the environment variables."""
    index = installed.index()
    known = {plugin.plugin for plugin in index.plugins}
    problems = [
        f"HAMI_PLUGINS={index.filter.setting} names {name}, which is not installed here"
        f"{_core.did_you_mean(_core.near_names(name, sorted(known)))}"
        for name in sorted(index.filter.names - known)
    ]
    problems += [
        f"HAMI_PLUGIN_PATH names {shown(folder)}, which is not a folder"
        for folder in filter(None, os.environ.get("HAMI_PLUGIN_PATH", "").split(os.pathsep))
        if not os.path.isdir(folder)
    ]
    return problems
