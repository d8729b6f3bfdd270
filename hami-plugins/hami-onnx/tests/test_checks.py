"""The checks before onnxruntime loads a model: limits of the graph, libraries, and a load in a child process."""

from __future__ import annotations

import hami
import numpy as np
import pytest
from conftest import save
from hami_model_check import isolation
from onnx import TensorProto, helper, numpy_helper

from hami_onnx._runtime import find_library

PORT = {"x": (TensorProto.FLOAT, ["n", 2])}, {"y": (TensorProto.FLOAT, ["n", 2])}


def refused(**parameters) -> str:
    """Return the first line of the ConfigError that OnnxTensor raises with these parameters."""
    with pytest.raises(hami.ConfigError) as error:
        hami.pipe({"backend": "OnnxTensor", **parameters})
    return str(error.value).splitlines()[0]


def with_functions(path, functions, name):
    """Write a model that calls the local function `name`."""
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("acme", 1)]
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        [helper.make_node(name, ["x"], ["y"], domain="acme")],
        "graph",
        [value("x", *PORT[0]["x"])],
        [value("y", *PORT[1]["y"])],
    )
    made = [
        helper.make_function("acme", name, ["x"], ["y"], [helper.make_node(*node) for node in nodes], opsets)
        for name, nodes in functions.items()
    ]
    for function in made:
        for node in function.node:
            node.domain = "acme" if node.op_type in functions else ""
    path.write_bytes(helper.make_model(graph, opset_imports=opsets, functions=made, ir_version=9).SerializeToString())
    return path


def test_local_functions_that_expand_without_end_are_refused(tmp_path):
    """onnxruntime would inline 2 ** 40 nodes."""
    functions = {"F0": [("Relu", ["x"], ["y"])]}
    for index in range(1, 41):
        previous = f"F{index - 1}"
        functions[f"F{index}"] = [(previous, ["x"], ["t"]), (previous, ["t"], ["y"])]
    path = with_functions(tmp_path / "bomb.onnx", functions, "F40")
    assert refused(model=str(path)) == (
        f'OnnxTensor: "{path}" ({path.stat().st_size} bytes) has more than max_nodes = 100,000 nodes after its local '
        "functions are inlined; simplify the model or raise max_nodes"
    )


def test_local_functions_that_call_each_other_too_deeply_are_refused(tmp_path):
    """onnxruntime before 1.30 ended the process by SIGSEGV."""
    functions = {"F0": [("Relu", ["x"], ["y"])]}
    functions |= {f"F{index}": [(f"F{index - 1}", ["x"], ["y"])] for index in range(1, 3000)}
    path = with_functions(tmp_path / "deep.onnx", functions, "F2999")
    assert "deeper than max_call_depth = 64;" in refused(model=str(path))


def test_a_model_with_local_functions_runs(pipe, tmp_path):
    functions = {"Twice": [("Add", ["x", "x"], ["y"])], "Four": [("Twice", ["x"], ["t"]), ("Twice", ["t"], ["y"])]}
    path = with_functions(tmp_path / "four.onnx", functions, "Four")
    assert pipe(model=str(path), max_nodes=5)({"data": np.ones((1, 2), np.float32)})["result"].tolist() == [[4, 4]]
    assert "max_nodes = 4 " in refused(model=str(path), max_nodes=4)
    assert "max_call_depth = 1;" in refused(model=str(path), max_call_depth=1)


def test_weights_outside_of_the_folder_of_the_model_are_refused(tmp_path):
    weights = numpy_helper.from_array(np.zeros(2, np.float32), "w")
    (tmp_path / "secret").write_bytes(weights.raw_data)
    (tmp_path / "model").mkdir()
    path = save(tmp_path / "model" / "m.onnx", [helper.make_node("Add", ["x", "w"], ["y"])], *PORT, {"w": [0.0, 0.0]})
    import onnx

    model = onnx.load(path)
    weights.ClearField("raw_data")
    weights.data_location = TensorProto.EXTERNAL
    weights.external_data.add(key="location", value="../secret")
    model.graph.initializer[0].CopyFrom(weights)
    path.write_bytes(model.SerializeToString())
    assert refused(model=str(path)).endswith(
        'names weights in "../secret", which is not a file in the folder of the model'
    )


# Libraries


@pytest.mark.parametrize(
    ("option", "library"),
    [
        ("backend_path={0}/libQnnHtp.so", "{0}/libQnnHtp.so"),
        ("backend_path=libQnnHtp.so", "libQnnHtp.so"),
        ("trt_extra_plugin_lib_paths=/a/b.txt;{0}/c.so.1.2", "{0}/c.so.1.2"),
        ("anything={0}/renamed", "{0}/renamed"),
    ],
)
def test_a_provider_option_that_names_a_library_needs_permission(models, tmp_path, option, library):
    (tmp_path / "renamed").write_bytes(b"\x7fELF and more")
    option, library = option.format(tmp_path), library.format(tmp_path)
    key = option.partition("=")[0]
    assert refused(model=str(models.double()), provider_options=[option]) == (
        f'{key} in "provider_options" of OnnxTensor loads native code, which a configuration may do only from allowed '
        f'files; allow "{library}" by HAMI_ALLOWED_LIBRARIES in the environment, or by hami.native.allow_library'
    )
    if "/" in library:
        hami.native.allow_library(library)
        hami.pipe({"backend": "OnnxTensor", "model": str(models.double()), "provider_options": [option]}).close()


# A load in a child process


@pytest.fixture
def loads(monkeypatch):
    """The backends and parameters that child processes have loaded; the processes run as usual."""
    started = []
    run = isolation.subprocess.Popen

    class Process(run):
        def communicate(self, text=None, timeout=None):
            import json

            config = json.loads(text)["config"]
            started.append((config.pop("backend"), config))
            return super().communicate(text, timeout)

    monkeypatch.setattr(isolation.subprocess, "Popen", Process)
    monkeypatch.setattr(isolation, "_loaded", set())
    return started


@pytest.mark.parametrize("backend", ["OnnxTensor", "LoadOnnx"])
def test_a_model_is_loaded_in_a_child_process_first(pipe, models, loads, backend):
    path = models.double()
    expression = "OnnxTensor" if backend == "OnnxTensor" else "IoC[LoadOnnx, OnnxInferTensor; OnnxInferTensor]"
    parameters = {"model": str(path), "isolate_load": True, "threads": 2, "max_nodes": 5, "instance_num": 2}
    for _ in range(2):
        opened = pipe(expression, **parameters)
        assert opened({"data": np.ones((1, 2), np.float32)})["result"].tolist() == [[2, 2]]
        opened.close()
    assert loads == [
        (
            f"hami-onnx::{backend}",
            {
                "model": str(path),
                "provider": "CPUExecutionProvider",
                "provider_options": [],
                "threads": 2,
                "memory": "arena",
                "max_nodes": 5,
                "max_graph_depth": 10,
                "max_call_depth": 64,
            },
        )
    ]


def test_an_open_model_is_not_loaded_in_a_child_process(pipe, models, loads):
    path = models.double()
    pipe(model=str(path))
    pipe(model=str(path), isolate_load=True)
    assert loads == []


def test_the_error_of_the_child_process_is_raised(tmp_path, loads):
    path = save(tmp_path / "odd.onnx", [helper.make_node("NoSuchOperator", ["x"], ["y"])], *PORT)
    assert "NoSuchOperator" in refused(model=str(path), isolate_load=True)
    assert len(loads) == 1


def test_a_signal_in_the_child_process_is_a_config_error(models, loads, monkeypatch, tmp_path):
    package = tmp_path / "onnxruntime"
    (package / "capi").mkdir(parents=True)
    (package / "capi" / find_library().name).symlink_to(find_library())
    (package / "__init__.py").write_text("import os, signal; os.kill(os.getpid(), signal.SIGFPE)")
    monkeypatch.syspath_prepend(str(tmp_path))  # the child imports this package instead of onnxruntime
    path = models.words()
    assert refused(model=str(path), isolate_load=True) == (
        "OnnxTensor: the child process that loaded the model first (isolate_load) was ended by SIGFPE (Floating point "
        "exception); the model is damaged or malicious, or the engine cannot load it"
    )
