"""Engines that cannot run, and their errors, with the fake library on the fake driver."""

from __future__ import annotations

import hami
import pytest
from fake_tensorrt import serialized, tensor
from hami_cuda.memory import InstanceStream
from hami_tensor import Device
from helpers import message

from hami_trt._engine import open_engine
from hami_trt._execution_context import ExecutionContext
from hami_trt._tensorrt import Library

DEVICE = Device("cuda:0")


@pytest.fixture
def open_fake(fake):
    """open_fake(bytes, …) opens an engine with the fake library."""
    library = Library("tensorrt", fake)
    return lambda blob=None, recipe=None, **given: open_engine(
        blob or serialized(**given), library, DEVICE, recipe, "Loader"
    )


def reason_without_context(engine):
    """Return the message of the error for an engine that gets no execution context."""
    with pytest.raises(hami.ConfigError) as raised:
        ExecutionContext.of_instance(engine, InstanceStream({}, DEVICE, "test"), 0, "TensorrtInferTensor")
    return message(raised)


@pytest.mark.parametrize(
    ("blob", "reason"),
    [
        (serialized()[:-5], "Serialization assertion plan.header.size == blobSize failed."),
        (b"something else", "Serialization assertion header.magicTag == kEXPECTED_MAGIC_TAG failed."),
        (
            serialized(version="10.0.1"),
            "The engine plan file is not compatible with this version of TensorRT, expecting library version 10.9.0 "
            "got 10.0.1, please rebuild.",
        ),
    ],
    ids=["truncated", "not an engine", "another version"],
)
def test_the_error_for_a_rejected_engine_has_the_reason(open_fake, blob, reason):
    with pytest.raises(hami.ConfigError) as raised:
        open_fake(blob)
    assert message(raised) == f"Loader: tensorrt 10.9.0 cannot load this engine ({len(blob)} bytes): {reason}"


def test_the_error_for_a_rejected_engine_has_its_origin(open_fake):
    recipe = {"library": "tensorrt", "version": "10.0.1", "gpu": "NVIDIA L4 (compute capability 8.9)"}
    with pytest.raises(hami.ConfigError) as raised:
        open_fake(serialized(version="10.0.1"), recipe)
    assert ", built by tensorrt 10.0.1 for NVIDIA L4 (compute capability 8.9)): The engine plan file" in message(raised)


def test_the_error_for_a_missing_runtime_has_the_reason(open_fake, fake):
    """For example, the driver is too old for the library."""
    fake.failures["Runtime"] = "CUDA initialization failure with error: 35"
    with pytest.raises(hami.ConfigError) as raised:
        open_fake()
    assert message(raised).endswith("bytes): CUDA initialization failure with error: 35")


def test_the_error_says_if_the_library_reports_no_reason(open_fake, fake, monkeypatch):
    engine = open_fake()
    monkeypatch.setattr(type(engine.handle), "create_execution_context", lambda self: None)
    assert "it reports no reason" in reason_without_context(engine)


@pytest.mark.parametrize(
    ("tensors", "problem"),
    [
        (
            {"x": tensor("INPUT"), "size": tensor("INPUT", "INT64", (2,), location="HOST")},
            'the values of "size" of the engine are a shape, which is not supported; export the model without such '
            "inputs and outputs",
        ),
        (
            {"x": tensor("INPUT", format="CHW32"), "y": tensor("OUTPUT")},
            '"x" of the engine has the unsupported memory format CHW32; build the engine with inputs and outputs '
            "in format LINEAR",
        ),
        (
            {"x": tensor("INPUT"), "y": tensor("OUTPUT", aliased="x")},
            'output "y" of the engine overwrites an input, which is not supported; export the model without '
            "outputs of this kind, for example attention caches",
        ),
        (
            {"x": tensor("INPUT", "INT4"), "y": tensor("OUTPUT")},
            '"x" of the engine has the unsupported type int4; supported are float32, float16, bfloat16, '
            "float8_e4m3fn, int8, int32, int64, uint8, bool",
        ),
    ],
    ids=["values that are a shape", "memory format", "output that overwrites an input", "type of less than a byte"],
)
def test_an_engine_with_unsupported_tensors_is_rejected(open_fake, tensors, problem):
    with pytest.raises(hami.ConfigError) as raised:
        open_fake(tensors=tensors)
    assert message(raised) == f"Loader: {problem}"


def test_rejected_input_shapes_are_an_error_when_the_pipe_is_built(open_fake, fake):
    engine = open_fake()
    fake.failures["infer_shapes"] = "broadcast dimensions must be conformable"
    assert reason_without_context(engine) == (
        "TensorrtInferTensor: tensorrt 10.9.0 rejects the input shapes [(2, 2)]: "
        "broadcast dimensions must be conformable"
    )


def test_an_output_whose_size_depends_on_values_is_rejected(open_fake):
    engine = open_fake(tensors={"x": tensor("INPUT"), "y": tensor("OUTPUT", "INT64", (-1, 2))}, program="nonzero")
    assert reason_without_context(engine) == (
        'TensorrtInferTensor: the size of output "y" depends on the values of the input, which is not supported; '
        "export the model with a fixed number of output rows"
    )


def test_inputs_without_a_common_number_of_rows_are_rejected(open_fake):
    engine = open_fake(
        tensors={"a": tensor("INPUT"), "b": tensor("INPUT"), "y": tensor("OUTPUT")},
        profiles=[{"a": [(1, 2), (2, 2), (2, 2)], "b": [(3, 2), (4, 2), (4, 2)]}],
    )
    assert reason_without_context(engine) == (
        "TensorrtInferTensor: the inputs have no number of rows in common in profile 0 of the engine: "
        '"a" takes 1..2, "b" takes 3..4; build the engine with equal rows for all inputs'
    )


def test_the_error_for_a_failed_context_has_the_reason(open_fake, fake):
    engine = open_fake()
    fake.failures["create_execution_context"] = "Error Code 2: OutOfMemory (Requested size was 8589934592 bytes.)"
    assert reason_without_context(engine) == (
        "TensorrtInferTensor: tensorrt 10.9.0 cannot create an execution context on cuda:0: Error Code 2: OutOfMemory "
        "(Requested size was 8589934592 bytes.); if memory is short, lower `instance_num` or `max`"
    )


def test_a_missing_loader_is_an_error(pipe):
    with pytest.raises(hami.ConfigError) as raised:
        pipe("TensorrtInferTensor")
    assert message(raised) == (
        "TensorrtInferTensor: no engine is open; put Onnx2Tensorrt or LoadTensorrtEngine before it, as in "
        "IoC[LoadTensorrtEngine, TensorrtInferTensor; TensorrtInferTensor], or use TensorrtTensor"
    )
