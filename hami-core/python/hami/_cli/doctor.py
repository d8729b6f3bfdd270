"""The command `hami doctor`: prints facts about the installation, and every problem with it."""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
from collections.abc import Callable
from typing import Any

from hami import _core
from hami._cli.terminal import print_table
from hami._plugins import policy
from hami._plugins.manager import installed
from hami._plugins.messages import describe_exception
from hami._plugins.plugin import CORE
from hami._plugins.requirements import requirements_of
from hami._text import did_you_mean, printable, visible_lines


def doctor(arguments: argparse.Namespace) -> int:
    """Print facts and problems; return 1 if there are problems."""
    facts = facts_of_core()
    problems: list[str] = []
    for plugin in installed.records(load=True):
        name = f"{plugin.distribution} {plugin.version}".strip()
        facts[name] = f"{plugin.state}, plugin ABI {plugin.abi}" if plugin.abi else plugin.state
        if requirements := requirements_of(plugin.distribution):
            facts[f"{plugin.distribution}: requires"] = requirements
        if plugin.state in ("failed", "incompatible"):
            problems.append(
                f"{name} {'failed to load' if plugin.state == 'failed' else 'is incompatible'}: {plugin.error}"
            )
    if gil_is_enabled := getattr(sys, "_is_gil_enabled", None):  # only now: a plugin may have turned it on
        facts["GIL"] = "on" if gil_is_enabled() else "off"
    problems += _ask("hami_report", lambda plugin, lines: facts.update(_lines_of(plugin, lines)))
    problems += _ask("hami_problems", lambda _, lines: problems.extend(map(_one_line, lines)))
    if next(installed.hook("hami_problems"), None) is None:
        facts["installed files"] = 'not compared with their hashes; pip install "hami-core[tools]"'
    problems += problems_of_environment()
    facts.update(policy.fact())
    if arguments.json:
        print(json.dumps({"facts": facts, "problems": problems}))
    else:
        print_table([[name, value] for name, value in facts.items()])
        print()
        print(visible_lines("\n".join(f"problem: {problem}" for problem in problems)) or "no problems found")
    return 1 if problems else 0


def facts_of_core() -> dict[str, str]:
    """Return the facts about the core and the machine that a bug report needs."""
    facts = {
        CORE: f"{_core.__version__}, {os.path.dirname(_core.__file__)}",
        "plugin ABI": _core.supported_abi(),
        "python": f"{platform.python_version()} {platform.python_implementation()}, {sys.executable}",
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "libc": " ".join(platform.libc_ver()).strip() or "unknown",
        "CPUs": f"{len(os.sched_getaffinity(0))} of {os.cpu_count() or 1} allowed to this process",
    }
    facts.update({name: value for name, value in sorted(os.environ.items()) if name.startswith("HAMI_")})
    return facts


def _ask(hook: str, take: Callable[[str, Any], object]) -> list[str]:
    """Pass the name of each plugin with a hook and what it answers to a function; return the failures."""
    failures = []
    for plugin, call in installed.hook(hook):
        try:
            for answer in call():
                take(plugin.distribution, answer)
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # a plugin may even call sys.exit
            failures.append(f"{hook} of {plugin.distribution} {plugin.version}: {describe_exception(error)}")
    return failures


def _lines_of(distribution: str, facts: dict[str, Any]) -> dict[str, str]:
    return {f"{distribution}: {name}": _one_line(value) for name, value in facts.items()}


def _one_line(value: Any) -> str:
    return " ".join(str(value).split())


def problems_of_environment() -> list[str]:
    """Return the problems of the environment variables."""
    index = installed.index()
    known = {plugin.plugin for plugin in index.plugins}
    problems = [
        f"HAMI_PLUGINS={index.filter.setting} names the plugin {name}, which is not installed"
        f"{did_you_mean(name, sorted(known))}"
        for name in sorted(index.filter.names - known)
    ]
    problems += [
        f"HAMI_PLUGIN_PATH contains {printable(folder)}, which is not a folder"
        for folder in filter(None, os.environ.get("HAMI_PLUGIN_PATH", "").split(os.pathsep))
        if not os.path.isdir(folder)
    ]
    return problems
