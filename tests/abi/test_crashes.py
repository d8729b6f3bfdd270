"""Exceptions and crashes of native plugins: the SDK lets no exception out; a crash of any plugin names it."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import hami
import pytest
from conftest import HERE, TOOLCHAINS, Toolchain

Build = Callable[..., Path]

KINDS = {
    "foreign": (hami.Error, "an exception that does not derive from std::exception"),
    "int": (hami.Error, "an exception that does not derive from std::exception"),
    "bad_alloc": (MemoryError, "out of memory"),
    "exception": (hami.Error, "no luck"),
    "hami": (hami.NotFound, "gone"),
}


@pytest.fixture
def throws(toolchain: Toolchain, build: Build) -> str:
    hami.native.register_plugin(build(toolchain, HERE / "plugins" / "throws.cpp"))
    return toolchain.prefix


@pytest.fixture(params=KINDS)
def what(request: pytest.FixtureRequest) -> str:
    return request.param


def check_raised(what: str, call: Callable[[], Any]) -> None:
    kind, text = KINDS[what]
    with pytest.raises(kind) as caught:
        call()
    assert type(caught.value) is kind
    assert str(caught.value).splitlines()[0] == text


@pytest.mark.parametrize("where", ["init", "range", "init and destructor"])
def test_an_exception_while_a_native_backend_is_created_is_raised(throws: str, where: str, what: str) -> None:
    check_raised(what, lambda: hami.pipe({"backend": f"{throws}ThrowsIn", "where": where, "what": what}))


def test_an_exception_of_a_constructor_is_raised(throws: str) -> None:
    check_raised("foreign", lambda: hami.pipe(f"{throws}ThrowsInConstructor"))


def test_an_exception_of_inject_dependency_is_raised(throws: str, what: str) -> None:
    backend = f"DI[{throws}ThrowsIn,Identity]"
    check_raised(what, lambda: hami.pipe({"backend": backend, "where": "inject_dependency", "what": what}))


@pytest.mark.parametrize(
    ("where", "expression"), [("forward", "{}ThrowsIn"), ("forward_with_dep", "With[{}ThrowsIn,Identity]")]
)
def test_an_exception_of_a_call_fails_its_request(throws: str, where: str, expression: str, what: str) -> None:
    with hami.pipe({"backend": expression.format(throws), "where": where, "what": what}) as pipe:
        for _ in range(2):
            check_raised(what, lambda: pipe({"data": 1}))


@pytest.mark.parametrize("where", ["destructor", "member"])
def test_an_exception_of_a_destructor_is_logged(
    throws: str, where: str, what: str, caplog: pytest.LogCaptureFixture
) -> None:
    with hami.pipe({"backend": f"{throws}ThrowsIn", "where": where, "what": what}) as pipe:
        assert pipe({"data": 1})["result"] == 1
    assert f"the destructor threw: {KINDS[what][1]}" in caplog.text


@pytest.mark.parametrize("where", ["release", "callback"])
def test_an_exception_of_a_callback_is_dropped(throws: str, where: str, what: str) -> None:
    with hami.pipe({"backend": f"{throws}ThrowsIn", "where": where, "what": what}) as pipe:
        for _ in range(2):
            request = pipe({"data": 1})
            assert request["result"] == 1
            request.pop("opaque", None)


def code_of_raw(toolchain: Toolchain, build: Build) -> str:
    return f"plugin raw ({build(toolchain, HERE / 'plugins' / 'raw.cpp')})"


RUN = """
import sys
import hami
library, source, where, how = sys.argv[1:]
hami.native.register_plugin(library)
params = {"where": where, "how": how} if where else {}
with hami.pipe({"backend": source, **params}) as pipe:
    print(pipe({"data": 1})["result"])
"""

EXPRESSIONS = {"forward_with_dep": "With[{}Raw,Identity]", "inject_dependency": "DI[{}Raw,Identity]"}
FUNCTIONS = ["create", "range", "inject_dependency", "forward", "forward_with_dep", "destroy"]
CALLBACKS = {
    "release": "the release function of test.raw",
    "callback": "a callback of an event of backend {prefix}Raw of plugin raw ({library})",
}


def run_raw(
    toolchain: Toolchain, build: Build, where: str, how: str, expression: str = "", before: str = ""
) -> tuple[subprocess.CompletedProcess[str], str]:
    """Run a pipe of the plugin without the SDK in a process; return it, and how a message names the function."""
    library = build(toolchain, HERE / "plugins" / "raw.cpp")
    expression = (expression or EXPRESSIONS.get(where, "{}Raw")).format(*[toolchain.prefix] * 2)
    command = [sys.executable, "-c", before + RUN, str(library), expression, where, how]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    name = CALLBACKS.get(where, f"{where} of backend {{prefix}}Raw of plugin raw ({{library}})")
    return done, name.format(prefix=toolchain.prefix, library=library)


@pytest.mark.parametrize("where", [*FUNCTIONS, *CALLBACKS])
@pytest.mark.parametrize(("how", "number"), [("abort", signal.SIGABRT), ("null", signal.SIGSEGV)])
def test_a_crash_of_a_plugin_names_it_and_its_function(
    toolchain: Toolchain, build: Build, where: str, how: str, number: signal.Signals
) -> None:
    done, name = run_raw(toolchain, build, where, how)
    if where == "release" and how == "null":  # of a type, which does not name the plugin
        name += f", in code of {code_of_raw(toolchain, build)}"
    assert done.returncode == -number
    assert f"hami: {number.name} in {name}\n" in done.stderr


@pytest.mark.parametrize("where", ["thread", "deleter"])
def test_a_crash_in_code_of_a_plugin_that_the_core_does_not_call_names_the_plugin(
    toolchain: Toolchain, build: Build, where: str
) -> None:
    """In a thread of the plugin, and in the deleter of its tensor, which a thread of Python calls."""
    done, _ = run_raw(toolchain, build, where, "null")
    expected = (-signal.SIGSEGV, f"hami: SIGSEGV in code of {code_of_raw(toolchain, build)}\n")
    assert (done.returncode, done.stderr) == expected


@pytest.mark.parametrize("where", [*FUNCTIONS, *CALLBACKS])
@pytest.mark.parametrize("how", ["exception", "int"])
def test_an_exception_that_leaves_a_plugin_names_it(toolchain: Toolchain, build: Build, where: str, how: str) -> None:
    """With the C++ runtime of the core it is an error; with another one it ends the process.

    A copy of the same runtime has a std::exception of its own, which the core does not know.
    """
    done, name = run_raw(toolchain, build, where, how)
    assert done.returncode in (0, 1, -signal.SIGABRT, -signal.SIGSEGV)
    if done.returncode >= 0:
        texts = {"an exception that does not derive from std::exception", *(["no luck"] if how == "exception" else [])}
        head = f"{name} threw an exception, which functions of a plugin must not do: "
        assert any(f"{head}{text}\n" in done.stderr for text in texts)
    else:
        assert f" in {name}\n" in done.stderr


def test_a_crash_while_a_library_is_initialised_names_it(toolchain: Toolchain, build: Build) -> None:
    library = build(toolchain, HERE / "plugins" / "raw.cpp", "-DCRASH_ON_LOAD")
    script = "import sys, hami; hami.native.register_plugin(sys.argv[1])"
    done = subprocess.run([sys.executable, "-c", script, str(library)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (-signal.SIGSEGV, f"hami: SIGSEGV in the initialisation of {library}\n")


CRASHING_CHILD = """
import ctypes
import hami
@hami.register
class CrashingChild(hami.Backend):
    def forward(self, batch):
        ctypes.string_at(0)
"""


def test_a_crash_outside_of_plugins_names_none(build: Build) -> None:
    """In the C library, which a thread of the plugin calls, or in a backend that the plugin calls."""
    done, _ = run_raw(TOOLCHAINS[0], build, "thread", "abort")
    assert (done.returncode, done.stderr) == (-signal.SIGABRT, "")
    done, _ = run_raw(TOOLCHAINS[0], build, "", "", "{}RawParent[CrashingChild]", before=CRASHING_CHILD)
    assert (done.returncode, done.stderr) == (-signal.SIGSEGV, "")


def test_a_child_that_crashes_is_named_instead_of_its_parent(build: Build) -> None:
    done, name = run_raw(TOOLCHAINS[0], build, "forward", "null", "{}RawParent[{}Raw]")
    assert (done.returncode, done.stderr) == (-signal.SIGSEGV, f"hami: SIGSEGV in {name}\n")


@pytest.mark.parametrize("how", ["abort", "null"])
@pytest.mark.parametrize("order", ["before", "after"])
def test_a_handler_of_the_program_still_runs(build: Build, how: str, order: str) -> None:
    enable = "import faulthandler, hami; faulthandler.enable(all_threads=False)\n"
    library = build(TOOLCHAINS[0], HERE / "plugins" / "raw.cpp")
    after = f"import hami; hami.native.register_plugin({str(library)!r})\n{enable}"
    done, name = run_raw(TOOLCHAINS[0], build, "forward", how, before=enable if order == "before" else after)
    number = signal.SIGABRT if how == "abort" else signal.SIGSEGV
    assert done.returncode == -number
    assert done.stderr.count(f"hami: {number.name} in {name}\n") == 1
    assert done.stderr.count("Fatal Python error: ") == 1
