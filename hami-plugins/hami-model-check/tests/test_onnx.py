"""read_onnx: what it counts, and every kind of file that it refuses."""

from __future__ import annotations

import contextlib
import itertools
import re
import time
from pathlib import Path

import hami
import numpy as np
import onnx
import pytest
from conftest import call, function, graph, nested, node, value
from onnx import TensorProto, helper, numpy_helper

from hami_model_check._protobuf import Reader
from hami_model_check.onnx import OnnxFile, OnnxLimits, read_onnx


def read(path: Path, **limits: int) -> OnnxFile:
    return read_onnx(path, backend="Owner", **limits)


def refused(path: Path, **limits: int) -> str:
    with pytest.raises(hami.ConfigError) as error:
        read(path, **limits)
    text = str(error.value)
    start = f'Owner: "{path}" ({path.stat().st_size} bytes) '
    assert text.startswith(start)
    return text.removeprefix(start)


# Nodes and local functions


def chain(count: int) -> list[onnx.NodeProto]:
    names = ["x", *(f"t{index}" for index in range(1, count)), "y"]
    return [node("Relu", *pair) for pair in itertools.pairwise(names)]


def test_nodes_are_counted_in_subgraphs_and_in_inlined_functions(save):
    twice = function("Twice", node("Relu", "x", "t"), node("Relu", "t", "y"))
    four = function("Four", call("Twice", "x", "t"), call("Twice", "t", "y"))
    assert read(save(*chain(7))).nodes == 7
    assert read(save(nested(3))).nodes == 3 + 3 + 1
    assert read(save(call("Four"), functions=[four, twice])).nodes == 1 + 2 + 4
    assert read(save(nested(1, call("Twice")), functions=[twice])).nodes == 1 + 2 + 2
    assert read(save(node("Relu"), functions=[four, twice])).nodes == 1


def test_the_number_of_nodes_is_limited(save):
    path = save(*chain(50))
    assert read(path, max_nodes=50).nodes == 50
    text = "has more than max_nodes = 49 nodes after its local functions are inlined; simplify the model or raise "
    assert refused(path, max_nodes=49) == text + "max_nodes"


def bomb(depth: int) -> list[onnx.FunctionProto]:
    """Functions F0 … F<depth>, each of which calls the one before it twice."""
    functions = [function("F0", node("Relu"))]
    for index in range(1, depth + 1):
        functions.append(function(f"F{index}", call(f"F{index - 1}", "x", "t"), call(f"F{index - 1}", "t", "y")))
    return functions


@pytest.mark.parametrize("is_called", [True, False])
def test_functions_that_expand_without_end_are_refused_at_once(save, is_called):
    path = save(call("F40") if is_called else node("Relu"), functions=bomb(40))
    assert path.stat().st_size < 4000
    started = time.process_time()
    assert refused(path).startswith("has more than max_nodes = 100,000 nodes after its local functions are inlined;")
    assert time.process_time() - started < 2  # the usual time is about 0.01 s


def test_the_depth_of_calls_is_limited(save):
    functions = [function("F0", node("Relu")), *(function(f"F{i}", call(f"F{i - 1}")) for i in range(1, 3000))]
    assert read(save(call("F63"), functions=functions[:64])).nodes == 65
    text = "has local functions that call each other deeper than max_call_depth = 64; inline some of them or raise "
    assert refused(save(call("F64"), functions=functions[:65])) == text + "max_call_depth"
    assert refused(save(call("F2999"), functions=functions)) == text + "max_call_depth"
    assert refused(save(call("F2999"), functions=functions[::-1])) == text + "max_call_depth"
    assert read(save(call("F64"), functions=functions[:65]), max_call_depth=65).nodes == 66


@pytest.mark.parametrize("length", [1, 2, 5])
def test_a_function_that_calls_itself_is_refused(save, length):
    functions = [function(f"F{i}", call(f"F{(i + 1) % length}")) for i in range(length)]
    text = refused(save(node("Relu"), functions=functions))
    assert re.fullmatch(r'has a local function "acme.F\d" that calls itself', text)


def test_a_function_that_is_defined_twice_is_refused(save):
    functions = [function("F", node("Relu")), function("F", node("Relu"))]
    assert refused(save(call("F"), functions=functions)) == (
        'is truncated or is not an ONNX model: it defines the local function "acme.F" twice'
    )


def test_the_two_names_of_the_standard_domain_are_one(save):
    relu = helper.make_function("ai.onnx", "Relu", ["x"], ["y"], [node("Abs"), node("Abs")], [])
    assert read(save(node("Relu"), functions=[relu])).nodes == 1 + 2


# Subgraphs


def test_the_depth_of_subgraphs_is_limited(save):
    assert read(save(nested(10))).nodes == 21
    text = "has subgraphs (If, Loop, Scan) nested deeper than max_graph_depth = "
    assert refused(save(nested(11))) == text + "10; simplify the model or raise max_graph_depth"
    assert refused(save(nested(25))).startswith(text + "10;")
    assert read(save(nested(11)), max_graph_depth=11).nodes == 23


def test_subgraphs_of_functions_count_where_they_are_called(save):
    deep = function("Deep", nested(6))
    assert read(save(nested(4, call("Deep")), functions=[deep])).nodes
    assert "max_graph_depth = 10" in refused(save(nested(5, call("Deep")), functions=[deep]))


# Cycles between nodes


def test_nodes_may_be_in_any_order(save):
    assert read(save(*chain(20)[::-1])).nodes == 20


@pytest.mark.parametrize(
    "nodes",
    [
        [node("Relu", "y", "y")],
        [node("Add", "x b", "a"), node("Relu", "a", "b"), node("Relu", "b", "y")],
        [node("If", "on", "a", then_branch=graph(node("Add", "x b", "y")), else_branch=graph(node("Relu"))),
         node("Relu", "a", "b")],
    ],
    ids=["itself", "two", "subgraph"],
)  # fmt: skip
def test_nodes_that_depend_on_each_other_are_refused(save, nodes):
    assert refused(save(*nodes)).startswith(
        "has nodes that depend on each other in a cycle; one that needs them is node "
    )
    body = function("F", *nodes)
    assert refused(save(node("Relu"), functions=[body])).startswith("has nodes that depend on each other in a cycle")


def test_a_name_inside_a_subgraph_hides_the_name_outside(save):
    inner = graph(node("Relu", "i", "b"), node("Relu", "b", "y"), inputs=[value("i")])
    assert read(save(node("Loop", "n on x", "a", body=inner), node("Relu", "a", "b"))).nodes == 4


# Tensors and weights


def test_a_tensor_must_have_the_data_of_its_shape(save):
    tensor = numpy_helper.from_array(np.zeros((2, 3), np.float32), "w")
    assert read(save(node("Relu"), initializers=[tensor])).nodes == 1
    tensor.dims[0] = 2**40
    assert refused(save(node("Relu"), initializers=[tensor])) == (
        'has a tensor "w" of shape [1099511627776, 3] with 24 bytes of data instead of 13194139533312'
    )
    tensor.dims[0] = -1
    assert refused(save(node("Relu"), initializers=[tensor])) == 'has a tensor "w" with an axis of negative length'
    constant = node("Constant", "", "y", value=tensor)
    assert refused(save(constant)) == 'has a tensor "w" with an axis of negative length'


WITHOUT_RAW_DATA = {TensorProto.UNDEFINED, TensorProto.STRING}


@pytest.mark.parametrize("kind", sorted(set(TensorProto.DataType.values()) - WITHOUT_RAW_DATA))
def test_the_size_of_an_element_is_known_for_every_type(save, kind):
    try:
        array = np.zeros(6, helper.tensor_dtype_to_np_dtype(kind))
        tensor = numpy_helper.from_array(array, "w")
    except (KeyError, NotImplementedError, TypeError, ValueError) as error:
        pytest.skip(f"this version of onnx cannot write the type: {error}")
    assert tensor.HasField("raw_data")
    assert read(save(node("Relu"), initializers=[tensor])).nodes == 1


def test_an_input_that_only_empty_data_fit_is_refused(save):
    text = 'has an input "x" with an axis of length 0, which only empty data fit'
    assert refused(save(node("Relu"), inputs=[value("x", ("n", 0))])) == text
    # Before IR version 4, all initializers are inputs too. An empty one is a usual way to leave an input out.
    empty = numpy_helper.from_array(np.zeros(0, np.float32), "x")
    assert read(save(node("Relu"), inputs=[value("x", (0,))], initializers=[empty])).nodes == 1


def external(name: str, file: str) -> TensorProto:
    tensor = numpy_helper.from_array(np.zeros(1, np.float32), name)
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value=file)
    return tensor


def test_external_files_are_found_in_all_parts_of_a_model(save):
    branch = graph(node("Constant", "", "y", value=external("c", "attribute.bin")), initializers=[external("d", "f/g")])
    values = helper.make_sparse_tensor(external("v", "values.bin"), external("i", "indices.bin"), [1])
    body = function("F", node("Constant", "", "y", value=external("e", "function.bin")))
    nodes = [
        node("If", "x", "y", then_branch=branch, else_branch=branch),
        node("Constant", "", "z", sparse_value=values),
    ]
    path = save(*nodes, functions=[body], initializers=[external("a", "a.bin"), external("b", "a.bin")])
    expected = ("a.bin", "attribute.bin", "f/g", "function.bin", "indices.bin", "values.bin")
    assert read(path).external_files == expected


@pytest.mark.parametrize(
    "location", ["/etc/passwd", "../secret", "a/../../b", "", "*/_ORT_MEM_ADDR_/*", "a\0b", "..", "a/.."], ids=repr
)
def test_weights_outside_of_the_folder_of_the_model_are_refused(save, location):
    text = refused(save(node("Relu"), initializers=[external("w", location)]))
    assert text == f'names weights in "{location}", which is not a file in the folder of the model'


# Damaged files


@pytest.mark.parametrize("content", [b"hello", b"\xff" * 40, b"\x3a\x7f", b"\x09\x00", b"", b"\x08\x09", b"<xml>"])
def test_a_file_that_is_not_a_model_is_refused(tmp_path, content):
    path = tmp_path / "model.onnx"
    path.write_bytes(content)
    assert refused(path).startswith("is truncated or is not an ONNX model: ")


def test_every_truncation_of_the_graph_is_refused(save):
    path = save(*chain(3), initializers=[numpy_helper.from_array(np.zeros(2, np.float32), "w")])
    whole = path.read_bytes()
    contents = onnx.load_from_string(whole).graph.SerializeToString()
    for length in range(whole.index(contents) + len(contents)):
        path.write_bytes(whole[:length])
        assert refused(path).startswith("is truncated or is not an ONNX model: ")


def test_mutated_models_are_read_or_refused_and_raise_no_other_error(save, tmp_path):
    random = np.random.default_rng(0)
    whole = save(nested(2), *chain(3), functions=bomb(3), initializers=[external("w", "w.bin")]).read_bytes()
    path = tmp_path / "mutated.onnx"
    for _ in range(1000):
        data = np.frombuffer(whole, np.uint8).copy()
        data[random.integers(0, len(data), 4)] = random.integers(0, 256, 4)
        path.unlink(missing_ok=True)
        path.write_bytes(data.tobytes())
        with contextlib.suppress(hami.ConfigError):
            read(path)


@pytest.mark.parametrize("field", [b"\x0a\x00", b"\x3a\x02\x0a\x00", b"\x08\x00", b"\x15\0\0\0\0"], ids=repr)
def test_a_file_of_tiny_fields_is_read_or_refused_quickly(tmp_path, field):
    path = tmp_path / "model.onnx"
    path.write_bytes(field * (20_000_000 // len(field)))
    started = time.process_time()
    text = refused(path, max_nodes=10)
    assert "fields, which is the limit for max_nodes = 10;" in text or "has no graph" in text or "more than" in text
    assert time.process_time() - started < 20  # the usual time is about 1 s


def test_numbers_of_an_attribute_are_skipped_as_a_whole():
    """A tree ensemble has millions of numbers, each a field of its own."""
    data = b"\x40\x81\x01" * 500_000 + b"\x3d\0\0\0\0" * 500_000 + b"\x0a\x01a"
    reader = Reader(data, max_fields=1)
    assert list(reader.fields(0, len(data))) == [(1, len(data) - 1, len(data))]


# Parameters, and changes of the file


def test_limits_must_make_sense(save):
    for name, wrong, range_ in (
        ("max_nodes", -1, "at least 0"),
        ("max_graph_depth", -1, "at least 0"),
        ("max_call_depth", 201, "from 0 to 200"),
    ):
        with pytest.raises(hami.ConfigError) as error:
            read(save(node("Relu")), **{name: wrong})
        assert str(error.value) == f'Owner: "{name}" must be {range_}, got {wrong}'


def test_the_parameters_of_backends_have_the_defaults_of_the_function(save):
    class Opens(OnnxLimits):
        def init(self, options) -> None:
            read_onnx(save(*chain(30)), backend="Opens", **self.onnx_limits())

        def forward(self, batch) -> None: ...

    hami.register("TestOpens")(Opens)
    hami.pipe("TestOpens").close()
    with pytest.raises(hami.ConfigError, match="max_nodes = 29"):
        hami.pipe("TestOpens(max_nodes=29)")
    assert read_onnx.__kwdefaults__ == OnnxLimits().onnx_limits() | {"empty_inputs": False}


def test_a_replaced_file_is_read_again(save):
    path = save(*chain(2))
    assert read(path).nodes == 2
    save(*chain(3), name="other.onnx").replace(path)
    assert read(path).nodes == 3
