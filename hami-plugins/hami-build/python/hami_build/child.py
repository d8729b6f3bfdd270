"""Runs the code of a wheel in a process of its own, which may crash: python child.py TASK FOLDER ARGUMENTS RESULT.

ARGUMENTS are JSON, and RESULT is the file into which the result is written as JSON. Only the standard library is
imported before the plugin.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import io
import json
import runpy
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any


def discover(modules: list[str]) -> dict[str, Any]:
    """Import the modules that HAMi imports to find backends; return processor time and new top-level modules."""
    import hami  # noqa: F401  (what it imports does not count)
    import pluggy  # noqa: F401

    before, start = set(sys.modules), time.process_time()
    for module in modules:
        importlib.import_module(module)
    seconds = time.process_time() - start
    names = {name.partition(".")[0] for name in set(sys.modules) - before}
    return {"seconds": seconds, "modules": sorted(names - sys.stdlib_module_names)}


class _Host(ctypes.Structure):
    """The head of hami_host in hami/abi.h."""

    _fields_ = (
        ("slot_count", ctypes.c_uint32),
        ("abi_major", ctypes.c_uint16),
        ("abi_minor", ctypes.c_uint16),
        ("min_minor", ctypes.c_uint16),
    )


def abi(libraries: list[str]) -> dict[str, list[int]]:
    """Return for each library the major and minor ABI version that it was built with, and the oldest minor it accepts.

    A library states them when the core fills its table. This host refuses, so that the library does nothing else.
    """
    found: dict[str, list[int]] = {}
    refusal = ctypes.create_string_buffer(256)
    for library in libraries:
        said: list[int] = []
        fill_type = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.POINTER(_Host))

        def fill(host: Any, said: list[int] = said) -> int:
            head = host.contents
            said += [head.abi_major, head.abi_minor, head.min_minor]
            return ctypes.addressof(refusal)

        entry = ctypes.CDLL(library).hami_plugin_v1
        entry.restype = ctypes.c_void_p
        error = ctypes.c_void_p()
        entry(fill_type(fill), ctypes.byref(error))
        found[library] = said
    return found


def registered(distribution: str) -> dict[str, Any]:
    """Load the plugins of a distribution; return why one cannot be used, and a description of what they register."""
    import hami

    infos = [info for info in hami.backends(load=True).values() if info.owner == distribution]
    records = [record for record in hami.plugins() if record.distribution == distribution]
    return {
        "errors": [record.error or record.state for record in records if record.state != "ok"],
        "remarks": [remark for record in records for remark in record.remarks],
        "backends": {
            info.name: {
                "summary": (info.doc or "").strip().partition("\n")[0],
                "params": [{"text": each["text"]} for each in info.params],
            }
            for info in infos
            if info.params is not None
        },
    }


def conformance(samples: dict[str, Any]) -> dict[str, str]:
    """Run `check_backend` for each backend; return its report, and "" for those that pass."""
    check_backend = runpy.run_path(str(Path(__file__).with_name("testing.py")))["check_backend"]
    found = {}
    for name, sample in samples.items():
        try:
            if isinstance(sample, str):
                module, _, function = sample.partition(":")
                sample = getattr(importlib.import_module(module), function)()
            with contextlib.redirect_stdout(io.StringIO()):
                check_backend(name, sample.get("params"), sample.get("request"))
        except AssertionError as error:
            lines = [line.strip() for line in str(error).splitlines()]
            found[name] = "; ".join(line for line in lines if line.startswith("FAILED")) or str(error)
        except Exception as error:
            found[name] = f"{type(error).__name__}: {error}"
        else:
            found[name] = ""
    return found


TASKS: dict[str, Callable[[Any], Any]] = {
    "discover": discover,
    "abi": abi,
    "registered": registered,
    "conformance": conformance,
}


def main() -> None:
    """Run the task that the arguments name."""
    task, folder, argument, result = sys.argv[1:]
    sys.path[0] = folder  # in place of the folder of this file
    text = json.dumps(TASKS[task](json.loads(argument)))
    with open(result, "w", encoding="utf-8") as file:
        file.write(text)


if __name__ == "__main__":
    main()
