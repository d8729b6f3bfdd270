"""Every kind of project that `hami new-plugin` writes is built by hami-build, passes its own tests, and is gold."""

from __future__ import annotations

import json

from _lib import project_templates
from _lib.paths import ROOT
from conftest import NVRTC, MakeMachine, share_compiler
from hami_build import headers, zig
from hami_build.interpreters import Interpreter

DRIVER = ROOT / "tests" / "wheels" / "fake_driver.c"
LARGE = {"torch": "torch"}  # what a kind requires and this test does not download


def test_an_extension_of_pybind11_is_built_audited_and_imported(
    make_machine: MakeMachine, interpreter: Interpreter, authors_index: str
) -> None:
    """The tests of hami-build for such a project, which need what hami-build[all] installs, and headers of Python."""
    machine = make_machine(authors_index)
    (machine.prefix / "include").mkdir()
    name = "python{}.{}".format(*interpreter.version)
    (machine.prefix / "include" / name).symlink_to(headers.include_folder(interpreter))
    machine.run("python3 -m venv env")
    machine.run('env/bin/pip install "hami-build[all]" pybind11 pytest')
    share_compiler(machine, *map(zig.target, zig.ARCHITECTURES))
    tests = ROOT / "hami-plugins" / "hami-build" / "tests" / "test_extension.py"
    done = machine.run(f"env/bin/python -m pytest -p no:cacheprovider {tests}")
    assert "passed" in done
    assert "could not import" not in done


def test_every_kind_is_built_tested_and_gold(make_machine: MakeMachine, authors_index: str) -> None:
    machine = make_machine(authors_index)
    machine.run("python3 -m venv env")
    machine.run(f'env/bin/pip install "hami-build[all]" hami-tools hami-tensor {NVRTC} pytest numpy')
    share_compiler(machine, zig.TARGET)
    for kind in project_templates.kinds():
        name = f"acme-{kind}-one"
        machine.run(f"env/bin/hami new-plugin {name} --{kind}")
        machine.run(f"env/bin/hami-build wheel {name} --to {name}/dist")
        machine.run(f"env/bin/pip install --no-deps {name}/dist/*.whl")
        if kind not in LARGE:
            machine.run(f"env/bin/python -m pytest {name}/tests")
            machine.run(f"env/bin/hami-build check {name}/dist/*.whl --require gold")
            if kind == "cuda":  # its kernel is on the CPU there, and the rest is as with a GPU
                compiler = f"env/bin/python -m ziglang cc -target {zig.TARGET} -shared -fPIC"
                machine.run(
                    f"{compiler} -o libcuda.so.1 {DRIVER}", ZIG_GLOBAL_CACHE_DIR=str(zig.cache_folder(zig.TARGET))
                )
                tested = machine.run(f"env/bin/python -m pytest {name}/tests", LD_LIBRARY_PATH=str(machine.home))
                assert "4 passed, 1 skipped" in tested
        else:
            (report,) = json.loads(machine.fails(f"env/bin/hami-build check {name}/dist/*.whl --require gold --json"))
            failed = [found for found in report["findings"] if found["state"] == "failed"]
            assert [found["check"] for found in failed] == ["conformance"]
            assert f"No module named '{LARGE[kind]}'" in failed[0]["detail"]
