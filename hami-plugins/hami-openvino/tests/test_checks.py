"""The checks before OpenVINO loads a model: limits of the graph, and a load in a child process."""

from __future__ import annotations

import itertools
import json
import signal

import hami
import numpy as np
import openvino
import pytest
from conftest import save, values
from hami_model_check import isolation
from onnx import TensorProto, helper

from hami_openvino._check import CheckModel

PORT = {"x": (TensorProto.FLOAT, ["n", 2])}, {"y": (TensorProto.FLOAT, ["n", 2])}


def error_of(pipe, **config) -> str:
    with pytest.raises(hami.ConfigError) as error:
        pipe(**config)
    return str(error.value).splitlines()[0]


def chain(path, count: int):
    names = ["x", *(f"t{index}" for index in range(1, count)), "y"]
    return save(path, [helper.make_node("Relu", [a], [b]) for a, b in itertools.pairwise(names)], *PORT)


def nested_ifs(path, depth: int):
    """y = x, in `depth` subgraphs, one in the other."""
    identity = helper.make_node("Identity", ["x"], ["y"])
    out = helper.make_tensor_value_info("y", *PORT[1]["y"])
    node = identity
    for _ in range(depth):
        branches = [helper.make_graph([each], "branch", [], [out]) for each in (node, identity)]
        node = helper.make_node("If", ["on"], ["y"], then_branch=branches[0], else_branch=branches[1])
    return save(path, [node], {**PORT[0], "on": (TensorProto.BOOL, [])}, PORT[1])


def test_a_chain_for_which_openvino_needs_minutes_is_refused(pipe, tmp_path):
    path = chain(tmp_path / "chain.onnx", 50_000)
    size = path.stat().st_size
    assert error_of(pipe, model=str(path)) == (
        f'OpenvinoTensor: "{path}" ({size} bytes) has more than max_nodes = 20,000 nodes after its local functions are '
        "inlined; simplify the model or raise max_nodes"
    )


def test_nested_subgraphs_for_which_openvino_needs_minutes_are_refused(pipe, tmp_path):
    text = error_of(pipe, model=str(nested_ifs(tmp_path / "deep.onnx", 25)))
    assert "has subgraphs (If, Loop, Scan) nested deeper than max_graph_depth = 10;" in text
    data = {"data": [np.ones((1, 2), np.float32), np.array(True)]}
    assert values(pipe(model=str(nested_ifs(tmp_path / "flat.onnx", 10)))(data)) == [[1, 1]]


def ends_by_a_division_by_zero(path):
    """An LSTM whose input has a batch axis of length 0. OpenVINO 2026.4 ends by SIGFPE when it compiles this model."""
    weights = {"w": np.ones((1, 12, 2), np.float32), "r": np.ones((1, 12, 3), np.float32)}
    node = helper.make_node("LSTM", ["x", "w", "r"], ["y"], hidden_size=3)
    ports = {"x": (TensorProto.FLOAT, ["t", 0, 2])}, {"y": (TensorProto.FLOAT, [None, 1, None, 3])}
    return save(path, [node], *ports, weights)


def ends_by_a_missing_input(path):
    """A Pad without the input that says how much. OpenVINO 2026.4 ends by SIGSEGV when it reads this model."""
    return save(path, [helper.make_node("Pad", ["x"], ["y"])], *PORT)


def test_an_input_that_only_empty_data_fit_is_refused(pipe, tmp_path):
    text = error_of(pipe, model=str(ends_by_a_division_by_zero(tmp_path / "lstm.onnx")))
    assert 'has an input "x" with an axis of length 0, which only empty data fit' in text


def test_an_axis_of_length_0_is_no_obstacle_for_other_operators(pipe, tmp_path):
    ports = {"x": (TensorProto.FLOAT, [2, 0])}, {"y": (TensorProto.FLOAT, [2, 0])}
    model = pipe(model=str(save(tmp_path / "m.onnx", [helper.make_node("Add", ["x", "x"], ["y"])], *ports)))
    assert values(model({"data": np.zeros((2, 0), np.float32)})) == [[], []]


@pytest.mark.parametrize("limit", ["max_nodes", "max_graph_depth", "max_call_depth"])
def test_a_limit_is_a_parameter(pipe, models, limit):
    pipe(model=str(models.double()), **{limit: 1})
    assert f'OpenvinoTensor: "{limit}" must be ' in error_of(pipe, model=str(models.double()), **{limit: -1})


def test_a_file_that_is_an_onnx_model_by_its_content_is_checked(pipe, tmp_path):
    path = chain(tmp_path / "chain.xml", 3)
    assert "max_nodes = 2 " in error_of(pipe, model=str(path), max_nodes=2)


def test_an_ir_has_no_limits(pipe, models):
    data = {"data": np.ones((1, 2), np.float32)}
    assert values(pipe(model=str(models.double_ir()), max_nodes=0, isolate_load=True)(data)) == [[2, 2]]


# A load in a child process


@pytest.fixture
def loads(monkeypatch):
    """The configurations that child processes have built, and the processes, which run as usual."""

    class Loads(list):
        processes = ()

    started = Loads()
    run = isolation.subprocess.Popen

    class Process(run):
        def communicate(self, text=None, timeout=None):
            started.append(json.loads(text)["config"])
            started.processes += (self,)
            return super().communicate(text, timeout)

    monkeypatch.setattr(isolation.subprocess, "Popen", Process)
    monkeypatch.setattr(isolation, "_loaded", set())
    return started


def test_a_model_is_loaded_in_a_child_process_first_with_the_same_parameters(pipe, models, loads):
    path = models.double()
    data = {"data": np.ones((1, 2), np.float32)}
    for _ in range(2):
        opened = pipe(model=str(path), isolate_load=True, threads=1, hint="none", instance_num=2)
        assert values(opened(data)) == [[2, 2]]
        opened.close()
    (config,) = loads
    assert config["backend"] == "hami-openvino::OpenvinoTensor"
    assert (config["model"], config["threads"], config["hint"]) == (str(path), 1, "none")
    every = {param["name"] for param in hami.backends()["OpenvinoTensor"].params}
    assert set(config) - {"backend"} == every - {
        "isolate_load",
        "cache_dir",
        "batched",
        "precision",
    }  # those left out are None


def test_the_check_knows_every_parameter_of_the_native_backend():
    every = {param["name"] for param in hami.backends()["OpenvinoTensor"].params}
    assert every == {*CheckModel.__annotations__, *CheckModel().onnx_limits()}


def test_replaced_weights_are_loaded_in_a_child_process_again(pipe, models, loads, tmp_path):
    path = models.double_ir()
    pipe(model=str(path), isolate_load=True).close()
    weights = path.with_suffix(".bin")
    weights.unlink()
    weights.write_bytes(b"")
    pipe(model=str(path), isolate_load=True).close()
    assert len(loads) == 2


def test_a_model_that_ends_the_child_process_is_a_config_error(pipe, tmp_path, loads):
    text = error_of(pipe, model=str(ends_by_a_missing_input(tmp_path / "pad.onnx")), isolate_load=True)
    version = openvino.get_version()
    if "was ended by" not in text:
        pytest.skip(f"OpenVINO {version} reports this model as an error: {text}")
    assert text == (
        "OpenvinoTensor: the child process that loaded the model first (isolate_load) was ended by SIGSEGV "
        "(Segmentation fault); the model is damaged or malicious, or the engine cannot load it"
    )


def test_the_child_process_is_killed_when_the_time_for_the_init_is_over(pipe, tmp_path, loads):
    """Ctrl-C or `init_timeout` end the init of the node; the thread that waits for the child process is detached."""
    path = nested_ifs(tmp_path / "deep.onnx", 25)
    with pytest.raises(hami.DeadlineExceeded) as error:
        pipe(model=str(path), max_graph_depth=25, isolate_load=True, init_timeout="2s")
    assert str(error.value).splitlines()[0] == 'the init of node "default" took longer than init_timeout = 2s'
    (process,) = loads.processes
    assert process.wait(60) == -signal.SIGKILL
