"""Engines that cannot be run, and what is said of each; by the fake of the library on the CPU."""

from __future__ import annotations

import hami
import pytest
import torch
from fake_tensorrt import serialized, tensor
from helpers import message

from hami_trt._engine import open_engine
from hami_trt._tensorrt import Library

CPU = torch.device("cpu")


@pytest.fixture
def opened(fake):
    """opened(bytes) -> the engine, of a library that is the fake one."""
    library = Library("tensorrt", fake)
    return lambda blob=None, recipe=None, **told: open_engine(
        blob or serialized(**told), library, CPU, recipe, "Loader"
    )


@pytest.mark.parametrize(
    ("blob", "told"),
    [
        (serialized()[:-5], "Serialization assertion plan.header.size == blobSize failed."),
        (b"something else", "Serialization assertion header.magicTag == kEXPECTED_MAGIC_TAG failed."),
        (
            serialized(version="10.0.1"),
            "The engine plan file is not compatible with this version of TensorRT, expecting library version 10.9.0 "
            "got 10.0.1, please rebuild.",
        ),
    ],
    ids=["truncated", "no engine", "another version"],
)
def test_an_engine_that_the_library_refuses_says_why(opened, blob, told):
    with pytest.raises(hami.ConfigError) as raised:
        opened(blob)
    assert message(raised) == f"Loader: tensorrt 10.9.0 cannot load this engine ({len(blob)} bytes): {told}"


def test_an_engine_that_is_known_to_be_made_elsewhere_is_told_with_that(opened):
    recipe = {"library": "tensorrt", "version": "10.0.1", "gpu": "NVIDIA L4 (compute capability 8.9)"}
    with pytest.raises(hami.ConfigError) as raised:
        opened(serialized(version="10.0.1"), recipe)
    assert ", built by tensorrt 10.0.1 for NVIDIA L4 (compute capability 8.9)): The engine plan file" in message(raised)


def test_a_library_that_gives_no_runtime_says_why(opened, fake):
    """As where the driver is too old for it."""
    fake.refuse["Runtime"] = "CUDA initialization failure with error: 35"
    with pytest.raises(hami.ConfigError) as raised:
        opened()
    assert message(raised).endswith("bytes): CUDA initialization failure with error: 35")


def test_a_library_that_gives_no_reason_is_not_made_to_look_as_if_it_did(opened, fake, monkeypatch):
    engine = opened()
    monkeypatch.setattr(type(engine.handle), "create_execution_context", lambda self: None)
    with pytest.raises(hami.ConfigError, match="it gives no reason"):
        engine.context(0, "TensorrtInferTensor")


def test_a_tensor_of_shapes_is_refused(opened):
    with pytest.raises(hami.ConfigError) as raised:
        opened(tensors={"x": tensor("INPUT"), "size": tensor("INPUT", "INT64", (2,), location="HOST")})
    assert message(raised) == (
        'Loader: "size" of the engine holds a shape as its values; such inputs and outputs are not served: '
        "export the model without them"
    )


def test_a_tensor_that_lies_in_memory_in_another_way_is_refused(opened):
    with pytest.raises(hami.ConfigError) as raised:
        opened(tensors={"x": tensor("INPUT", format="CHW32"), "y": tensor("OUTPUT")})
    assert message(raised) == (
        'Loader: "x" of the engine lies in memory as CHW32; such inputs and outputs are not served: '
        "build the engine with LINEAR ones"
    )


def test_an_output_that_overwrites_an_input_is_refused(opened):
    with pytest.raises(hami.ConfigError) as raised:
        opened(tensors={"x": tensor("INPUT"), "y": tensor("OUTPUT", aliased="x")})
    assert message(raised) == (
        'Loader: "y" of the engine overwrites an input, as the cache of an attention does; such outputs are not '
        "served: export the model without them"
    )


def test_shapes_that_lead_nowhere_are_told_when_the_pipe_is_built(opened, fake):
    engine = opened()
    fake.refuse["infer_shapes"] = "broadcast dimensions must be conformable"
    with pytest.raises(hami.ConfigError) as raised:
        engine.context(0, "TensorrtInferTensor")
    assert message(raised) == (
        "TensorrtInferTensor: tensorrt 10.9.0 cannot work with inputs of [(2, 2)]: "
        "broadcast dimensions must be conformable"
    )


def test_a_type_that_torch_does_not_have_is_refused(opened):
    with pytest.raises(hami.ConfigError) as raised:
        opened(tensors={"x": tensor("INPUT", "INT4"), "y": tensor("OUTPUT")})
    assert message(raised) == (
        'Loader: "x" of the engine is int4; what goes in and out is one of float32, float16, bfloat16, '
        "float8_e4m3fn, int8, int32, int64, uint8, bool"
    )


def test_an_output_whose_size_is_not_known_beforehand_is_refused(opened):
    engine = opened(tensors={"x": tensor("INPUT"), "y": tensor("OUTPUT", "INT64", (-1, 2))}, program="nonzero")
    with pytest.raises(hami.ConfigError) as raised:
        engine.context(0, "TensorrtInferTensor")
    assert message(raised) == (
        'TensorrtInferTensor: how large output "y" is depends on the values of the input; such outputs are not served: '
        "let the model give a fixed number of rows"
    )


def test_inputs_that_no_number_of_rows_fits_are_refused(opened):
    engine = opened(
        tensors={"a": tensor("INPUT"), "b": tensor("INPUT"), "y": tensor("OUTPUT")},
        profiles=[{"a": [(1, 2), (2, 2), (2, 2)], "b": [(3, 2), (4, 2), (4, 2)]}],
    )
    with pytest.raises(hami.ConfigError) as raised:
        engine.context(0, "TensorrtInferTensor")
    assert message(raised) == (
        "TensorrtInferTensor: in profile 0 of the engine the inputs have no number of rows in common: "
        '"a" takes 1..2, "b" takes 3..4; build it with the same rows for all'
    )


def test_a_context_that_cannot_be_made_says_why(opened, fake):
    engine = opened()
    fake.refuse["create_execution_context"] = "Error Code 2: OutOfMemory (Requested size was 8589934592 bytes.)"
    with pytest.raises(hami.ConfigError) as raised:
        engine.context(0, "TensorrtInferTensor")
    assert message(raised) == (
        "TensorrtInferTensor: tensorrt 10.9.0 cannot make an execution context on cpu: Error Code 2: OutOfMemory "
        "(Requested size was 8589934592 bytes.); lower `instance_num` or `max` if memory is short"
    )


def test_without_an_engine_the_backend_says_what_to_put_before_it(pipe):
    with pytest.raises(hami.ConfigError) as raised:
        pipe("TensorrtInferTensor")
    assert message(raised) == (
        "TensorrtInferTensor: no engine was opened before it; put Onnx2Tensorrt or LoadTensorrtEngine first, as in "
        "IoC[LoadTensorrtEngine, TensorrtInferTensor; TensorrtInferTensor], or use TensorrtTensor"
    )


def test_what_runs_on_another_stream_waits_for_the_one_before(opened, monkeypatch):
    log: list[str] = []

    class Stream:
        def __init__(self, handle: int) -> None:
            self.cuda_stream = handle

        def wait_stream(self, other) -> None:
            log.append(f"{self.cuda_stream} waits for {other.cuda_stream}")

        def synchronize(self) -> None:
            log.append(f"the CPU waits for {self.cuda_stream}")

    first, second = Stream(1), Stream(2)
    current = [first]
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: current[0])
    engine = opened()
    monkeypatch.setattr(engine, "device", torch.device("cuda:0"))
    monkeypatch.setattr(type(engine), "on_device", lambda self: torch.no_grad())
    context = engine.context(0, "TensorrtInferTensor")
    assert log == ["the CPU waits for 1"]  # the profile is taken
    log.clear()
    for stream in (first, second, second, first):
        current[0] = stream
        assert context._stream() == stream.cuda_stream
    assert log == ["2 waits for 1", "1 waits for 2"]
    log.clear()
    context.close()
    assert log == ["the CPU waits for 1"]
