"""Native plugins of several wheels in one process: containers with backends of another plugin, and exchanged values."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import GOLDEN, TOOLCHAINS, Toolchain
from test_loading import install

PROGRAM = """
import hami
import numpy as np

names = {names!r}
print(sorted({{hami.backends()[name].owner for name in names.values()}}))
with hami.pipe("{{Twice}}[S[{{MakeTag}},{{ReadTag}}]]".format(**names)) as pipe:
    print(pipe({{"data": 7}})["result"])
with hami.pipe("S[{{Share}},{{Scale}}(factor=3)]".format(**names)) as pipe:
    print(hami.to_numpy(pipe({{"data": np.ones(2, np.float32)}})["result"]).tolist())
with hami.pipe("{{Twice}}[{{Pairs}}]".format(**names)) as pipe:
    print(max(item["result"] for item in pipe([{{"data": i}} for i in range(9)])) <= 2)
with hami.pipe("{{Twice}}[{{OwnThread}}]".format(**names)) as pipe:
    print(pipe({{"data": 1}})["result"])
"""
OF_THE_FIRST = ("Twice", "MakeTag", "Share")
OF_THE_SECOND = ("ReadTag", "Scale", "Pairs", "OwnThread")


@pytest.mark.parametrize("first", TOOLCHAINS, ids=lambda made: f"from-{made.name}")
def test_plugins_of_two_compilers_work_together(first: Toolchain, build: Callable[..., Path], tmp_path: Path) -> None:
    (second,) = (other for other in TOOLCHAINS if other is not first)
    names = {}
    for package, toolchain, own in (("acme-one", first, OF_THE_FIRST), ("acme-two", second, OF_THE_SECOND)):
        mine = {name: toolchain.prefix + name for name in own}
        install(tmp_path, package, build(toolchain, GOLDEN / "full.cpp", include=GOLDEN / "include"), *mine.values())
        names |= mine
    path = os.pathsep.join(filter(None, [str(tmp_path), os.environ.get("PYTHONPATH", "")]))
    env = {**os.environ, "PYTHONPATH": path, "HAMI_PLUGINS": "one,two"}
    command = [sys.executable, "-c", PROGRAM.format(names=names)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=env)
    assert done.stderr == ""
    assert done.stdout.splitlines() == ["['acme-one', 'acme-two']", "7", "[3.0, 3.0]", "True", "True"]
