"""OpenvinoTensor: batches along axis 0, several inputs and outputs, shapes, types, and isolated failures."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import hami
import numpy as np
import pytest
from conftest import array, floats, message, values
from onnx import TensorProto


def test_runs_a_model(pipe, models):
    request = {"data": floats([1, 2], [3, 4])}
    answer = pipe(model=str(models.double()))(request)
    assert isinstance(answer["result"], hami.Tensor)
    assert values(answer) == [[2, 4], [6, 8]]
    assert request["data"].tolist() == [[1, 2], [3, 4]]


def test_the_result_equals_that_of_numpy(pipe, models):
    path, constants = models.layers()
    data = np.random.default_rng(3).standard_normal((5, 8)).astype(np.float32)
    expected = np.maximum(data @ constants["a"] + constants["b"], 0) @ constants["c"]
    result = array(pipe(model=str(path), properties=["INFERENCE_PRECISION_HINT=f32"])({"data": data}))
    np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-5)


def test_runs_an_openvino_ir(pipe, models):
    assert values(pipe(model=str(models.double_ir()), max=4)({"data": floats([1, 2])})) == [[2, 4]]


def test_requests_of_one_batch_get_their_own_rows(pipe, models):
    requests = [{"data": floats([i, i])} for i in range(7)]
    requests.append({"data": floats([50, 50], [60, 60]), "request_size": 2})
    pipe(model=str(models.double()), max=16)(requests)
    assert [values(request) for request in requests[:7]] == [[[2 * i, 2 * i]] for i in range(7)]
    assert values(requests[7]) == [[100, 100], [120, 120]]


def test_data_without_a_batch_axis_is_one_row_and_gives_a_result_without_one(pipe, models):
    requests = [{"data": floats(1, 2)}, {"data": floats([3, 4])}, {"data": floats(5, 6)}]
    pipe(model=str(models.double()), max=8)(requests)
    assert [values(request) for request in requests] == [[2, 4], [[6, 8]], [10, 12]]


def test_different_shapes_in_one_batch_are_run_separately(pipe, models):
    requests = [{"data": np.full((1, width), width, np.float32)} for width in (3, 5, 3, 4, 5)]
    pipe(model=str(models.double()), max=8)(requests)
    assert [values(request) for request in requests] == [[[2.0 * w] * w] for w in (3, 5, 3, 4, 5)]


@pytest.mark.parametrize(
    "data",
    [
        {"b": floats([1, 1]), "a": floats([3, 4])},
        [floats([3, 4]), floats([1, 1])],
        (floats([3, 4]), floats([1, 1])),
    ],
)
def test_several_inputs_are_given_by_name_or_in_order_and_outputs_by_name(pipe, models, data):
    result = pipe(model=str(models.sum_and_difference()))({"data": data})["result"]
    assert {name: array(result, name).tolist() for name in result} == {"total": [[4, 5]], "rest": [[2, 3]]}


def test_an_output_without_axes_is_a_scalar(pipe, models):
    result = pipe(model=str(models.total()))({"data": np.float32([[1, 2], [3, 4]])})["result"]
    assert {name: hami.to_numpy(value).tolist() for name, value in result.items()} == {"y": 10, "size": [2]}


def test_several_inputs_are_joined_and_outputs_are_split(pipe, models):
    requests = [{"data": {"a": floats([i, 1]), "b": floats([1, i])}} for i in range(5)]
    pipe(model=str(models.sum_and_difference()), max=8)(requests)
    for i, request in enumerate(requests):
        assert array(request["result"], "total").tolist() == [[i + 1, i + 1]]
        assert array(request["result"], "rest").tolist() == [[i - 1, 1 - i]]


def test_an_input_is_found_by_each_of_its_names_and_equal_outputs_get_different_names(pipe, models):
    shared = pipe(model=str(models.shared_names()))
    for name in ("x", "also_x"):
        result = shared({"data": {name: floats([1, -2])}})["result"]
        assert len(result) == 2
        assert [array(result, output).tolist() for output in result] == [[[1, 0]]] * 2
    with pytest.raises(hami.RequestError):
        shared({"data": {"x": floats([1, 2]), "also_x": floats([1, 2])}})


@pytest.mark.parametrize("dtype", [np.bool_, np.int8, np.uint8])
def test_8_bit_integers_are_converted_to_float16(pipe, models, dtype):
    numbers = np.arange(256).astype(np.uint8).view(np.int8 if dtype == np.int8 else np.uint8).astype(dtype)
    result = array(pipe(model=str(models.identity(TensorProto.FLOAT16)))({"data": numbers.reshape(1, -1)}))
    assert np.array_equal(result, numbers.reshape(1, -1).astype(np.float16))


def test_a_request_that_makes_the_run_fail_does_not_fail_its_batch(pipe, models):
    requests = [{"data": [floats([i, i]), np.array([[width]])]} for i, width in enumerate((2, 5, 2))]
    with pytest.raises(hami.BatchError) as error:
        pipe(model=str(models.folded()), max=8, batched=True)(requests)
    assert [index for index, _ in error.value.errors] == [1]
    (_, reason), *_ = error.value.errors
    assert isinstance(reason, hami.RequestError)
    assert str(reason).startswith("OpenvinoTensor: the model failed on x float32 [1, 2], width int64 [1, 1]: ")
    assert values(requests[0]) == [[0, 0]]
    assert values(requests[2]) == [[2, 2]]
    assert "result" not in requests[1]


def test_a_request_of_a_wrong_type_does_not_fail_its_batch(pipe, models):
    requests = [{"data": floats([1, 1])}, {"data": "text"}, {}, {"data": floats([2, 2])}]
    with pytest.raises(hami.BatchError) as error:
        pipe(model=str(models.double()), max=8)(requests)
    kinds = {index: type(reason) for index, reason in error.value.errors}
    assert kinds == {1: hami.DataTypeError, 2: hami.RequestError}
    assert values(requests[3]) == [[4, 4]]


@pytest.mark.parametrize("dtype", [np.bool_, np.int8, np.uint8, np.int16, np.uint16, np.float16])
def test_types_are_converted_without_loss(pipe, models, dtype):
    result = array(pipe(model=str(models.double()))({"data": np.array([[0, 1]], dtype)}))
    assert result.dtype == np.float32
    assert result.tolist() == [[0, 2]]


def test_every_float16_value_is_converted_exactly_to_float32(pipe, models):
    halves = np.arange(2**16, dtype=np.uint16).view(np.float16).reshape(1, -1)
    result = array(pipe(model=str(models.identity()))({"data": halves}))
    np.testing.assert_array_equal(result, halves.astype(np.float32))


KINDS = {
    TensorProto.BOOL: np.bool_,
    TensorProto.INT8: np.int8,
    TensorProto.INT32: np.int32,
    TensorProto.INT64: np.int64,
    TensorProto.UINT8: np.uint8,
    TensorProto.FLOAT16: np.float16,
    TensorProto.DOUBLE: np.float64,
}


@pytest.mark.parametrize(("kind", "dtype"), KINDS.items(), ids=[np.dtype(dtype).name for dtype in KINDS.values()])
def test_each_element_type_is_supported(pipe, models, kind, dtype):
    result = array(pipe(model=str(models.identity(kind)))({"data": np.array([[0, 1]], dtype)}))
    assert result.dtype == dtype
    assert result.tolist() == [[0, 1]]


def test_safe_rejects_a_lossy_conversion(pipe, models):
    with pytest.raises(hami.DataTypeError) as error:
        pipe(model=str(models.double()), cast="safe")({"data": np.array([[1.0, 2.0]])})
    assert message(error) == (
        'OpenvinoTensor: input "x" expects float32, got float64, which cannot be converted without loss; '
        'call .astype("float32") on the data to accept the loss'
    )


def test_strings_are_rejected(pipe, models):
    with pytest.raises(hami.ConfigError) as error:
        pipe(model=str(models.strings()))
    expected = 'OpenvinoTensor: "x" of the model has an unsupported element type; supported are bool, int8, int16, '
    assert expected in str(error.value)


def unaligned(data):
    """Return a copy that starts one byte after an aligned address."""
    memory = np.zeros(data.nbytes + 1, np.uint8)
    shifted = memory[1:].view(data.dtype).reshape(data.shape)
    shifted[...] = data
    return shifted


def read_only(data):
    data.flags.writeable = False
    return data


exports_read_only = pytest.mark.skipif(
    tuple(map(int, np.__version__.split(".")[:2])) < (2, 1),
    reason="NumPy before 2.1 does not export read-only arrays",
)


@pytest.mark.parametrize(
    "data",
    [
        np.arange(12, dtype=np.float32).reshape(4, 3).T[::-1],
        np.arange(24, dtype=np.float32).reshape(4, 6)[:, ::2],
        pytest.param(np.broadcast_to(np.float32(3), (2, 4)), marks=exports_read_only),
        unaligned(np.arange(12, dtype=np.float32).reshape(3, 4)),
        pytest.param(read_only(np.arange(12, dtype=np.float32).reshape(3, 4)), marks=exports_read_only),
        np.zeros((2, 0), np.float32),
        np.zeros((0, 2), np.float32),
    ],
    ids=["transposed", "strided", "broadcast", "unaligned", "read-only", "no columns", "no rows"],
)
def test_arrays_of_any_memory_layout_are_supported(pipe, models, data):
    result = array(pipe(model=str(models.double()))({"data": data}))
    assert result.shape == data.shape
    assert np.array_equal(result, data * 2)


@pytest.mark.parametrize("dtype", [">f4", ">f2", ">i2"])
def test_arrays_of_the_other_byte_order_are_converted(pipe, models, dtype):
    data = np.arange(12).reshape(3, 4).astype(dtype)
    for given in (data, data.T, data[::-1, ::2]):
        assert np.array_equal(array(pipe(model=str(models.double()))({"data": given})), given * 2)


def test_bfloat16_arrays_are_read_and_returned(pipe, models):
    ml_dtypes = pytest.importorskip("ml_dtypes", reason="numpy has no bfloat16 without it")
    data = np.float32([[1, -2, 0.5], [300, 1e30, 7]]).astype(ml_dtypes.bfloat16)
    double = pipe(model=str(models.double(kind=TensorProto.BFLOAT16)))
    for given in (data, data.T, data[::-1, ::2]):
        result = array(double({"data": given}))
        assert result.dtype == given.dtype
        assert np.array_equal(result.astype(np.float32), given.astype(np.float32) * 2)
    as_float = pipe(model=str(models.identity()))
    assert np.array_equal(array(as_float({"data": data})), data.astype(np.float32))


def test_objects_with_dlpack_are_supported(pipe, models):
    class Tensor:
        def __init__(self, array):
            self.array = array

        def __dlpack__(self, **options):
            return self.array.__dlpack__(**options)

        def __dlpack_device__(self):
            return self.array.__dlpack_device__()

    assert values(pipe(model=str(models.double()))({"data": Tensor(floats([1, 2]))})) == [[2, 4]]


def test_a_result_is_valid_data_for_the_next_backend(models):
    with hami.pipe({"node": {"backend": "S[OpenvinoTensor,OpenvinoTensor]", "model": str(models.double())}}) as twice:
        assert values(twice({"data": floats([1, 2])})) == [[4, 8]]


def test_a_result_is_not_overwritten_by_the_next_request(pipe, models):
    double = pipe(model=str(models.double()))
    first = array(double({"data": floats([1, 2])}))
    double({"data": floats([7, 7])})
    assert first.tolist() == [[2, 4]]


@pytest.mark.parametrize(
    ("data", "kind", "text"),
    [
        (
            b"bytes",
            hami.DataTypeError,
            'OpenvinoTensor: input "x", float32 [?, 2]: expected a tensor, got bytes',
        ),
        (
            np.zeros((1, 3), np.float32),
            hami.RequestError,
            'OpenvinoTensor: input "x" expects float32 [?, 2], got float32 [1, 3]',
        ),
        (
            np.zeros((1, 1, 2), np.float32),
            hami.RequestError,
            'OpenvinoTensor: input "x" expects float32 [?, 2], got float32 [1, 1, 2]',
        ),
        ([], hami.RequestError, 'OpenvinoTensor: the model has the inputs ["x"], got a list of length 0'),
        ({"z": 1}, hami.RequestError, 'OpenvinoTensor: the model has the inputs ["x"], got a dict with the keys ["z"]'),
    ],
)
def test_data_that_does_not_match_the_model_is_rejected(pipe, models, data, kind, text):
    with pytest.raises(kind) as error:
        pipe(model=str(models.double(width=2)))({"data": data})
    assert message(error) == text


@pytest.mark.parametrize(
    ("data", "got"), [(floats([1, 2]), "one tensor, float32 [1, 2]"), ("text", "a value that is neither")]
)
def test_one_value_for_several_inputs_is_rejected(pipe, models, data, got):
    with pytest.raises(hami.DataTypeError) as error:
        pipe(model=str(models.sum_and_difference()))({"data": data})
    expected = 'OpenvinoTensor: "data" must be a dict by input name, or a list in the order ["a", "b"]'
    assert message(error) == f"{expected}, got {got}"


def test_inputs_with_different_rows_are_rejected(pipe, models):
    with pytest.raises(hami.RequestError) as error:
        pipe(model=str(models.sum_and_difference()))({"data": [floats([1, 2]), floats([1, 2], [3, 4])]})
    expected = "OpenvinoTensor: all inputs must have the same number of rows (axis 0), got a [1, 2], b [2, 2]"
    assert message(error) == expected


def test_a_request_size_that_differs_from_the_rows_is_rejected(pipe, models):
    with pytest.raises(hami.RequestError) as error:
        pipe(model=str(models.double()), max=8)({"data": floats([1, 2]), "request_size": 2})
    expected = 'OpenvinoTensor: "request_size" must be the number of rows (axis 0) of the data, 1, got 2'
    assert message(error) == expected


def test_missing_data_is_named(pipe, models):
    with pytest.raises(hami.RequestError) as error:
        pipe(model=str(models.double()))({"image": 1})
    assert message(error) == (
        'OpenvinoTensor: the request has no key "data", and none of the model\'s inputs ["x"]; its keys are ["image"]'
    )


def test_a_failed_request_does_not_stop_the_pipe(pipe, models):
    double = pipe(model=str(models.double()))
    request = {"data": "text", "result": "stale"}
    with pytest.raises(hami.DataTypeError):
        double(request)
    assert "result" not in request
    assert values(double({"data": floats([1, 2])})) == [[2, 4]]


def test_many_threads_get_their_own_results(pipe, models):
    double = pipe(model=str(models.double()), instance_num=3, max=4, hint="throughput")
    with ThreadPoolExecutor(8) as threads:
        results = list(threads.map(lambda i: values(double({"data": floats([i, i])})), range(200)))
    assert results == [[[2 * i, 2 * i]] for i in range(200)]


@pytest.mark.parametrize(("rows", "batches"), [(None, 1), (1, 8)])
def test_a_node_without_max_runs_the_requests_of_a_call_together_if_the_batch_axis_is_free(pipe, models, rows, batches):
    running = pipe(model=str(models.double(**({} if rows is None else {"rows": rows}))))
    requests = running([{"data": floats([number, 1])} for number in range(8)])
    assert [values(request) for request in requests] == [[[2 * number, 2]] for number in range(8)]
    assert running.stats()["default"].batches == batches
