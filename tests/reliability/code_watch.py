"""Finds code that HAMi runs because data names it: a plugin of pytest, and what code_from_data.py uses.

    PYTHONPATH=tests/reliability python -m pytest -p code_watch tests/python/test_config.py

An audit hook sees each import, compilation, execution, unpickling and opening of a library. What begins in a file of
HAMi is allowed if it is an import statement, whose name is in the source, or if `REASONS` has its function.
"""

from __future__ import annotations

import ast
import dis
import encodings
import importlib
import re
import sys
import sysconfig
import threading
from collections.abc import Iterator
from types import CodeType, FrameType
from typing import Any

import pytest

OURS = re.compile(r"/(?:python|site-packages)/(hami(?:_\w+)?/.*)")
# Where the names come from that are not in the source of a statement, and the functions of HAMi that run code by them.
REASONS = {
    "constants and tables in the same file": (
        "hami/__init__.py:__getattr__",
        "hami/observe/__init__.py:__getattr__",
        "hami_accel/__init__.py:__getattr__",
        "hami_accel/recipe.py:_read",
        "hami_build/child.py:conformance",
        "hami_cuda/_driver.py:cuda_version",
        "hami_cuda/_driver.py:describe",
        "hami_cuda/_nvjpeg.py:_loads",
        "hami_cuda/device.py:_driver",
        "hami_model_check/_child.py:main",
        "hami_process/codec.py:_array",
        "hami_process/codec.py:_dtype_of",
        "hami_serve/__init__.py:__getattr__",
        "hami_serve/server.py:keep_freed_memory",
        "hami_tools/graph/graph.py:render",
        "hami_trt/_tensorrt.py:_load",
    ),
    "entry points of installed distributions, and what they register": (
        "hami/_cli/arguments.py:run",
        "hami/_plugins/loading.py:import_object",
        "hami_accel/platform.py:_create",
        "hami_serve/routes.py:plugin_routes",
    ),
    "the command line: --import, and wheels to check": (
        "hami/_cli/source.py:_import",
        "hami_build/child.py:abi",
        "hami_build/child.py:discover",
        "hami_serve/server.py:_import_file",
        "hami_serve/server.py:import_all",
    ),
    "the annotations of a backend's class, which is code": ("hami/_backends/params.py:_resolve",),
    "allow lists that the program or its environment sets": (
        "hami_process/child.py:_build",
        "hami_torch/_factories.py:find",
    ),
    "a process and its own child, which run the same code": (
        "hami_process/child.py:_receive",
        "hami_process/codec.py:message",
        "hami_process/codec.py:value",
        "hami_process/exceptions.py:decode_error",
        "hami_process/exceptions.py:encode_error",
        "hami_process/imports.py:_module",
        "hami_process/monitor.py:_read",
        "hami_serve/workers.py:_portable",
    ),
    "compiled files, which are compared and never run": ("hami_tools/packages/compiled_files.py:same",),
}
ALLOWED = frozenset(site for sites in REASONS.values() for site in sites)
IMPORT_NAME = dis.opmap["IMPORT_NAME"]
IMPORTING = ("<frozen importlib._bootstrap>", "<frozen importlib._bootstrap_external>")
WATCHED = ("import", "compile", "exec", "pickle.find_class", "marshal.loads", "ctypes.dlopen")
found: dict[str, str] = {}  # what is not allowed, with the first arguments that were seen
seen: dict[str, int] = dict.fromkeys(WATCHED, 0)  # events that begin in a file of HAMi
_here = threading.local()  # has `busy` while the hook itself runs on a thread


def callers(frame: FrameType | None) -> Iterator[FrameType]:
    while frame is not None:
        yield frame
        frame = frame.f_back


def site_of(frame: FrameType) -> str:
    """Return a function of HAMi as `package/file.py:function`, or "" for other code."""
    ours = OURS.search(frame.f_code.co_filename)
    return f"{ours.group(1)}:{frame.f_code.co_name}" if ours else ""


def begins_in(event: str) -> str:
    """Return the function of HAMi in which an event begins; "" if another program's, a statement's or an import's."""
    inside_import = by_function = False
    nearest = sys._getframe(2)
    if is_named_by_source(event, nearest):
        return ""
    for frame in callers(nearest):
        file = frame.f_code.co_filename
        if file in IMPORTING:
            inside_import = True
            continue
        if file == importlib.__file__:  # import_module: it has no event of its own
            by_function = True
            continue
        if inside_import and (event in ("compile", "marshal.loads") or not by_function):
            return ""  # of a statement, which was an event of its own, or before the module is executed
        if frame.f_code.co_name == "<module>":
            return ""  # a module that is imported, which is an event of its own, or the program
        if site := site_of(frame):
            return site
        if not file.startswith(("<", sys.prefix, sys.base_prefix)):
            return ""  # a backend or a callback of the program
    return ""


def is_named_by_source(event: str, frame: FrameType) -> bool:
    """Whether the frame imports by a statement, or makes no code but a syntax tree."""
    if event == "import":  # encodings and sysconfig import modules of their own
        is_statement = frame.f_code.co_code[frame.f_lasti] == IMPORT_NAME
        return is_statement or frame.f_code.co_filename in (encodings.__file__, sysconfig.__file__)
    return event == "compile" and makes_a_tree(frame)


def is_own_module(shown: str) -> bool:
    """Whether it is a module of hami-core, which its native part imports by name."""
    return shown.startswith("hami.") or "/hami/" in shown


def makes_a_tree(frame: FrameType) -> bool:
    """Whether the frame compiles to a syntax tree, which does not run."""
    return (frame.f_code.co_filename, frame.f_code.co_name) == (ast.__file__, "parse")


def on_event(event: str, arguments: tuple[Any, ...]) -> None:
    """The audit hook."""
    if event not in seen or getattr(_here, "busy", False):
        return
    _here.busy = True
    try:
        if site := begins_in(event):
            shown = arguments[0].co_filename if isinstance(arguments[0], CodeType) else arguments[0]
            seen[event] += 1
            if site not in ALLOWED and not (event in ("import", "exec") and is_own_module(str(shown))):
                found.setdefault(f"{event} in {site}", repr(shown)[:200])
    finally:
        _here.busy = False


# ---- the plugin of pytest ----


def pytest_configure() -> None:
    sys.addaudithook(on_event)


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    if found and not session.exitstatus:
        session.exitstatus = 1


def pytest_terminal_summary(terminalreporter: Any) -> None:
    terminalreporter.write_line(f"code by names of HAMi: {', '.join(f'{event} {n}' for event, n in seen.items())}")
    for where, shown in sorted(found.items()):
        terminalreporter.write_line(f"CODE FROM DATA: {where}: {shown}")
