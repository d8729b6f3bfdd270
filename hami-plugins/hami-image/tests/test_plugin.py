"""The package as a plugin: its entry points match its backends, and registering them imports no heavy library."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import entry_points

import hami
import hami.config


def test_every_declared_name_is_a_backend_of_this_package():
    declared = {point.name for point in entry_points(group="hami.backends") if point.value == "hami_image.plugin"}
    found = {name: info for name, info in hami.backends(load=True).items() if info.owner == "hami-image"}
    functions = found.pop("ImageFunctions")  # the table of functions for DecodeMat
    assert (set(found), functions.thread) == (declared, "concurrent")
    assert {(info.thread, info.lightweight, info.range) for info in found.values()} == {("concurrent", True, "1 to 1")}


def test_servers_learn_that_a_pipeline_takes_the_bytes_of_pictures():
    graph = {"a": {"backend": "S[DecodeMat,Mat2Tensor]", "next": "b"}, "b": {"backend": "Identity"}}
    for source, wanted in ((graph, "bytes"), ("DecodeMat", "bytes"), ("Mat2Tensor", None)):
        with hami.pipe(source) as pipe:
            assert hami.config.data_type(pipe.describe()) == wanted


def test_the_entry_module_imports_no_opencv_and_no_numpy():
    code = "import sys, hami_image.plugin; print(sorted({'cv2', 'numpy'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_a_backend_can_run_on_many_threads_at_once(image):
    from concurrent.futures import ThreadPoolExecutor

    with hami.pipe({"backend": "ResizeMat", "width": 20, "height": 15}) as pipe, ThreadPoolExecutor(8) as threads:
        results = list(threads.map(lambda _: pipe({"data": image})["result"], range(100)))
    assert all((result == results[0]).all() for result in results)
