"""The package as a plugin: its entry points match its backends, and registering them imports no heavy library."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import entry_points

import hami


def test_every_declared_name_is_a_backend_of_this_package():
    declared = {point.name for point in entry_points(group="hami.backends") if point.value == "hami_text.plugin"}
    assert {name for name, found in hami.backends(load=True).items() if found.owner == "hami-text"} == declared


def test_the_entry_module_imports_no_tokenizers_and_no_numpy():
    code = "import sys, hami_text.plugin; print(sorted({'numpy', 'onnxruntime', 'tokenizers'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_the_pipelines_are_packaged_and_their_backends_are_installed():
    from importlib.resources import files

    points = [point for point in entry_points(group="hami.pipelines") if point.value.startswith("hami_text:")]
    assert {point.name for point in points} == {"classify-text", "embed", "entities", "rerank"}
    text = ""
    for point in points:
        package, _, name = point.value.partition(":")
        text += files(package).joinpath(name).read_text()
    for backend in ("Tokenize", "Pad", "OnnxTensor", "Pool", "TopLabels", "NameEntities", "RankTexts"):
        assert backend in text
        assert [owner.name for owner in entry_points(group="hami.backends", name=backend)] == [backend]
