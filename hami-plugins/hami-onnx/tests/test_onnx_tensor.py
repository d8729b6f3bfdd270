"""OnnxTensor: batches along axis 0, several inputs and outputs, shapes, types, and failures of single requests."""

from __future__ import annotations

import ctypes

import hami
import numpy as np
import pytest
from conftest import save
from hami.__main__ import main
from onnx import TensorProto, helper


def floats(*values):
    return np.array(values, np.float32)


def message(error) -> str:
    return str(error.value).splitlines()[0]


def test_a_model_runs_and_does_not_change_the_data(pipe, models):
    request = {"data": floats([1, 2], [3, 4])}
    result = pipe(model=str(models.double()))(request)["result"]
    assert result.tolist() == [[2, 4], [6, 8]]
    assert request["data"].tolist() == [[1, 2], [3, 4]]


def test_requests_of_one_batch_get_their_own_rows(pipe, models):
    requests = [{"data": floats([i, i])} for i in range(7)]
    requests.append({"data": floats([50, 50], [60, 60]), "request_size": 2})
    pipe(model=str(models.double()), max=16)(requests)
    assert [request["result"].tolist() for request in requests[:7]] == [[[2 * i, 2 * i]] for i in range(7)]
    assert requests[7]["result"].tolist() == [[100, 100], [120, 120]]


def test_data_without_the_batch_axis_has_a_result_without_it(pipe, models):
    requests = [{"data": floats(1, 2)}, {"data": floats([3, 4])}, {"data": floats(5, 6)}]
    pipe(model=str(models.double()), max=8)(requests)
    assert [request["result"].tolist() for request in requests] == [[2, 4], [[6, 8]], [10, 12]]


def test_requests_with_different_shapes_can_share_a_batch(pipe, models):
    requests = [{"data": np.full((1, width), width, np.float32)} for width in (3, 5, 3, 4, 5)]
    running = pipe(model=str(models.double()), max=8)
    running(requests)
    assert [request["result"].tolist() for request in requests] == [[[2.0 * w] * w] for w in (3, 5, 3, 4, 5)]
    node = running.stats()["default"]
    assert node.batches <= node.counters["groups"] <= 5
    running = pipe(model=str(models.double()), max=8, batching="off")
    running([{"data": np.full((1, width), width, np.float32)} for width in (3, 5, 3, 4, 5)])
    assert running.stats()["default"].counters["groups"] == 3


@pytest.mark.parametrize(
    "data",
    [
        {"b": floats([1, 1]), "a": floats([3, 4])},
        [floats([3, 4]), floats([1, 1])],
        (floats([3, 4]), floats([1, 1])),
    ],
)
def test_inputs_are_given_by_name_or_in_order_and_outputs_are_returned_by_name(pipe, models, data):
    result = pipe(model=str(models.sum_and_difference()))({"data": data})["result"]
    assert {name: value.tolist() for name, value in result.items()} == {"total": [[4, 5]], "rest": [[2, 3]]}


def test_several_inputs_and_outputs_are_batched(pipe, models):
    requests = [{"data": {"a": floats([i, 1]), "b": floats([1, i])}} for i in range(5)]
    pipe(model=str(models.sum_and_difference()), max=8)(requests)
    for i, request in enumerate(requests):
        assert request["result"]["total"].tolist() == [[i + 1, i + 1]]
        assert request["result"]["rest"].tolist() == [[i - 1, 1 - i]]


def test_a_model_with_a_fixed_batch_size_takes_exactly_its_rows(pipe, models):
    fixed = pipe(model=str(models.double(rows=3)), batching_timeout=1000)
    requests = [{"data": floats([i, i])} for i in range(3)]
    fixed(requests)
    assert [request["result"].tolist() for request in requests] == [[[0, 0]], [[2, 2]], [[4, 4]]]
    whole = fixed({"data": floats([1, 1], [2, 2], [3, 3]), "request_size": 3})["result"]
    assert whole.tolist() == [[2, 2], [4, 4], [6, 6]]


def outcomes(pipe, requests):
    """Return the result of each request, or the type of its error."""
    errors = {}
    try:
        pipe(requests)
    except hami.BatchError as error:
        errors = dict(error.errors)
    return [type(errors[i]) if i in errors else request["result"].tolist() for i, request in enumerate(requests)]


def test_a_bad_request_does_not_fail_its_batch_with_a_fixed_batch_size(pipe, models):
    fixed = pipe(model=str(models.double(rows=3, width=2)), batching_timeout=1000)
    requests = [{"data": floats([i, i])} for i in range(6)]
    requests[1] = {"data": "text"}
    requests[5] = {"data": floats(5, 5)}
    expected = [[[2 * i, 2 * i]] for i in range(6)]
    expected[1], expected[5] = hami.DataTypeError, [10, 10]
    assert outcomes(fixed, requests) == expected


def test_different_shapes_run_separately_with_a_fixed_batch_size(pipe, models):
    fixed = pipe(model=str(models.double(rows=4)), batching_timeout=1000)
    requests = [{"data": np.full((1, width), width, np.float32)} for width in (3, 4, 3, 5)]
    assert outcomes(fixed, requests) == [[[2.0 * w] * w] for w in (3, 4, 3, 5)]


def test_requests_are_retried_alone_after_a_failed_run_with_a_fixed_batch_size(pipe, models):
    fixed = pipe(model=str(models.pick(rows=3)), batching_timeout=1000)
    requests = [{"data": np.array([index])} for index in (0, 3, 2)]
    assert outcomes(fixed, requests) == [[[0, 1]], hami.RequestError, [[4, 5]]]


@pytest.mark.parametrize("rows", [0, 1, 2, 3, 4, 7])
def test_a_fixed_batch_size_takes_any_number_of_rows_in_padded_blocks(pipe, models, rows):
    fixed = pipe(model=str(models.double(rows=3)))
    data = np.arange(2 * rows, dtype=np.float32).reshape(rows, 2)
    assert np.array_equal(fixed({"data": data})["result"], 2 * data)
    requests = [{"data": np.ones((rows if i == 1 else 1, 2), np.float32)} for i in range(3)]
    fixed(requests)
    assert [len(request["result"]) for request in requests] == [1, rows, 1]


def test_a_fixed_batch_size_of_one_runs_requests_one_by_one(pipe, models):
    single = pipe(model=str(models.double(rows=1)))
    requests = [{"data": floats([i, i])} for i in range(4)]
    single(requests)
    assert [request["result"].tolist() for request in requests] == [[[2 * i, 2 * i]] for i in range(4)]


def test_max_above_a_fixed_batch_size_is_a_config_error(pipe, models):
    with pytest.raises(hami.ConfigError):
        pipe(model=str(models.double(rows=3)), max=4)


def test_a_model_without_a_common_batch_axis_runs_request_by_request(pipe, models):
    requests = [{"data": [floats([i, i]), np.float32(10)]} for i in range(3)]
    pipe(model=str(models.add_scalar()))(requests)
    assert [request["result"].tolist() for request in requests] == [[[10, 10]], [[11, 11]], [[12, 12]]]


@pytest.mark.parametrize("batched", [{}, {"batched": False}])
def test_requests_run_alone_if_an_output_has_no_row_per_input_row(pipe, models, batched):
    requests = [{"data": floats([0, 1])}, {"data": floats([1, 1])}, {"data": floats([0, 0])}]
    pipe(model=str(models.nonzero()), **batched)(requests)
    assert [request["result"].tolist() for request in requests] == [[[0, 1]], [[0, 0], [0, 1]], []]


def test_requests_run_alone_if_the_declared_batch_axis_is_not_one(pipe, models):
    requests = [{"data": floats([1, 1])}, {"data": floats([0, 0])}, {"data": floats([1, 1])}]
    pipe(model=str(models.nonzero()), max=8, batched=True)(requests)
    assert [request["result"].tolist() for request in requests] == [[[0, 0], [0, 1]], [], [[0, 0], [0, 1]]]


def test_an_unnamed_dynamic_axis_is_a_batch_if_rows_are_independent(pipe, models):
    requests = [{"data": floats([i, i])} for i in range(5)]
    running = pipe(model=str(models.double(rows=None)), max=8)
    running(requests)
    assert [request["result"].tolist() for request in requests] == [[[2 * i, 2 * i]] for i in range(5)]
    assert running.stats()["default"].batches == 1


@pytest.mark.parametrize(("columns", "width"), [("n", "n"), (2, "n"), (2, "2*n"), ("rows of n", "w")])
def test_requests_run_alone_if_another_axis_depends_on_the_batch_axis(pipe, models, columns, width):
    """In a batch, the rows of one request would be combined with the rows of the others."""
    path = str(models.products(columns, width))
    with pytest.raises(hami.ConfigError):
        pipe(model=path, max=8)
    requests = [{"data": np.full((rows, 2), rows, np.float32)} for rows in (2, 1, 2)]
    pipe(model=path)([request for request in requests if columns == 2 or len(request["data"]) == 2])
    assert requests[2]["result"].tolist() == [[8, 8], [8, 8]]


def test_batched_true_is_refused_for_a_model_without_a_batch_axis(models):
    with pytest.raises(hami.ConfigError) as error:
        hami.pipe({"backend": "OnnxTensor", "model": str(models.constant()), "batched": True})
    assert (
        "OnnxTensor: batched = true needs the same axis 0 in all inputs and outputs, got y float32 [2]; "
        "name other axes with batch_axes"
    ) in str(error.value)


def test_a_request_that_fails_the_run_does_not_fail_its_batch(pipe, models, capfd):
    requests = [{"data": np.array([index])} for index in (0, 3, 2)]
    with pytest.raises(hami.BatchError) as error:
        pipe(model=str(models.pick()), max=8)(requests)
    assert [index for index, _ in error.value.errors] == [1]
    (_, reason), *_ = error.value.errors
    assert isinstance(reason, hami.RequestError)
    assert str(reason).startswith("OnnxTensor: the model failed on index int64 [1]: ")
    assert requests[0]["result"].tolist() == [[0, 1]]
    assert requests[2]["result"].tolist() == [[4, 5]]
    assert "result" not in requests[1]
    assert capfd.readouterr().err == ""  # by default, onnxruntime would log the data of clients


def test_a_request_of_a_wrong_type_does_not_fail_its_batch(pipe, models):
    requests = [{"data": floats([1, 1])}, {"data": "text"}, {}, {"data": floats([2, 2])}]
    with pytest.raises(hami.BatchError) as error:
        pipe(model=str(models.double()), max=8)(requests)
    kinds = {index: type(reason) for index, reason in error.value.errors}
    assert kinds == {1: hami.DataTypeError, 2: hami.RequestError}
    assert requests[3]["result"].tolist() == [[4, 4]]


@pytest.mark.parametrize("dtype", [np.uint8, np.int16, np.float16])
def test_types_are_converted_without_loss(pipe, models, dtype):
    result = pipe(model=str(models.double()))({"data": np.array([[1, 2]], dtype)})["result"]
    assert result.dtype == "float32"
    assert result.tolist() == [[2, 4]]


def test_the_key_cast_says_which_conversions_are_allowed(pipe, models):
    model = str(models.double())
    for value in ([[1.0, 2.0]], np.array([[1.0, 2.0]]), np.int64([[1, 2]]), [[1, 2]]):
        assert pipe(model=model)({"data": value})["result"].tolist() == [[2, 4]]
    with pytest.raises(hami.DataTypeError) as error:
        pipe(model=model, cast="safe")({"data": np.array([[1.0, 2.0]])})
    assert message(error).startswith(
        'OnnxTensor: input "x" expects float32, got float64, which cannot be converted without loss; '
        'convert it with .astype("float32")'
    )
    with pytest.raises(hami.DataTypeError, match="expects float32, got uint8"):
        pipe(model=model, cast="false")({"data": np.uint8([[1, 2]])})
    with pytest.raises(hami.ConfigError, match='"cast" is "exact", "safe" or false'):
        pipe(model=model, cast="often")


def test_a_list_is_rows_and_a_flat_list_is_one_row(pipe, models):
    running = pipe(model=str(models.double(width=2)))
    assert running({"data": [[1, 2]]})["result"].tolist() == [[2, 4]]
    assert running({"data": [[1, 2], [3, 4.5]]})["result"].tolist() == [[2, 4], [6, 9]]
    assert running({"data": [1, 2]})["result"].tolist() == [2, 4]
    assert running({"data": {"x": [[1, 2]]}})["result"].tolist() == [[2, 4]]
    assert running({"data": [np.float32([[1, 2]])]})["result"].tolist() == [[2, 4]]  # a list of inputs, as ever
    for wrong in ([[1, 2], [3]], [["a", "b"]], [[float("nan"), None]]):
        with pytest.raises(hami.DataTypeError, match='input "x"'):
            running({"data": wrong})
    assert running({"data": [[1, 2]]})["result"].tolist() == [[2, 4]]


@pytest.mark.parametrize("dtype", [np.int64, np.uint64])
def test_64_bit_integers_are_not_rounded_to_floats(pipe, models, dtype):
    with pytest.raises(hami.DataTypeError) as error:
        pipe(model=str(models.double(kind=TensorProto.DOUBLE)))({"data": np.array([[2**53 + 1]], dtype)})
    assert message(error).startswith(
        f'OnnxTensor: input "x" expects float64, got {np.dtype(dtype)} with the value 9007199254740993'
    )


def test_the_result_of_a_scalar_row_is_a_tensor(pipe, models):
    for data in (np.array(2, np.float32), np.float32(2)):
        number = pipe(model=str(models.double(shape=["n"])))({"data": data})["result"]
        assert (type(number), number.shape, number.dtype, number.tolist()) == (hami.Tensor, (), "float32", 4)
    word = pipe(model=str(models.words()))({"data": np.array("a")})["result"]
    assert (type(word), word.dtype, word.tolist()) == (np.ndarray, np.dtype(object), "a")


def test_strings_are_accepted(pipe, models):
    assert pipe(model=str(models.words()))({"data": np.array(["a", "bc"])})["result"].tolist() == ["a", "bc"]


@pytest.mark.parametrize(
    ("data", "types"),
    [(np.array(["a", None, 3], object), "NoneType, int"), (np.array([1]), "int")],
)
def test_other_objects_are_not_converted_to_strings(pipe, models, data, types):
    with pytest.raises(hami.DataTypeError) as error:
        pipe(model=str(models.words()))({"data": data})
    assert message(error) == f'OnnxTensor: input "x" expects str or UTF-8 bytes, got an array of {types}'


@pytest.mark.parametrize("data", [np.array([b"gr\xc3\xbc\xc3\x9f"]), np.array([b"gr\xc3\xbc\xc3\x9f"], object), "grüß"])
def test_bytes_are_text_in_utf_8_and_a_single_text_is_a_tensor(pipe, models, data):
    assert pipe(model=str(models.words()))({"data": data})["result"].tolist() == ["grüß"]
    with pytest.raises(hami.DataTypeError) as error:
        pipe(model=str(models.words()))({"data": np.array([b"\xff"], object)})
    assert message(error).startswith('OnnxTensor: input "x" expects UTF-8 text, got bytes: ')


def test_a_model_without_inputs_takes_an_empty_list(pipe, models):
    constant = pipe(model=str(models.constant()))
    assert constant({"data": []})["result"].tolist() == [1, 2]
    with pytest.raises(hami.DataTypeError) as error:
        constant({"data": floats(1)})
    assert message(error) == 'OnnxTensor: "data" must be a dict by input name, or a list in the order [], got ndarray'


def test_arrays_that_are_not_contiguous_are_accepted(pipe, models):
    data = np.arange(12, dtype=np.float32).reshape(4, 3).T[::-1]
    assert np.array_equal(pipe(model=str(models.double()))({"data": data})["result"], data * 2)


def test_an_object_that_supports_dlpack_is_accepted(pipe, models):
    class Tensor:
        def __init__(self, array):
            self.array = array

        def __dlpack__(self, **options):
            return self.array.__dlpack__(**options)

        def __dlpack_device__(self):
            return self.array.__dlpack_device__()

    assert pipe(model=str(models.double()))({"data": Tensor(floats([1, 2]))})["result"].tolist() == [[2, 4]]


def test_a_dlpack_struct_without_a_shape_is_a_data_type_error(pipe, models):
    """NumPy would read the shape at address 0."""

    class WithoutShape:
        def __dlpack__(self, **_):
            capsule = np.zeros((2, 2), np.float32).__dlpack__()
            address = ctypes.pythonapi.PyCapsule_GetPointer
            address.restype, address.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
            ctypes.memset(address(capsule, b"dltensor") + 24, 0, 8)
            return capsule

        def __dlpack_device__(self):
            return (1, 0)

    with pytest.raises(hami.DataTypeError) as error:
        pipe(model=str(models.double()))({"data": WithoutShape()})
    assert str(error.value).splitlines()[0].endswith("read through DLPack: a DLPack tensor without a shape")


@pytest.mark.parametrize(
    ("data", "kind", "text"),
    [
        (b"bytes", hami.DataTypeError, 'OnnxTensor: input "x" (float32 [?, 2]) expects float32, got bytes'),
        (
            np.zeros((1, 3), np.float32),
            hami.RequestError,
            'OnnxTensor: input "x" expects float32 [?, 2], got float32 [1, 3]',
        ),
        (
            np.zeros((1, 1, 2), np.float32),
            hami.RequestError,
            'OnnxTensor: input "x" expects float32 [?, 2], got float32 [1, 1, 2]',
        ),
        ([], hami.RequestError, "OnnxTensor: the model has the inputs ['x'], got a list of length 0"),
        ({"z": 1}, hami.RequestError, "OnnxTensor: the model has the inputs ['x'], got a dict with the keys ['z']"),
    ],
)
def test_data_that_does_not_match_the_inputs_is_refused(pipe, models, data, kind, text):
    with pytest.raises(kind) as error:
        pipe(model=str(models.double(width=2)))({"data": data})
    assert message(error) == text


def test_one_array_for_several_inputs_is_refused(pipe, models):
    with pytest.raises(hami.DataTypeError) as error:
        pipe(model=str(models.sum_and_difference()))({"data": floats([1, 2])})
    assert message(error) == (
        "OnnxTensor: \"data\" must be a dict by input name, or a list in the order ['a', 'b'], got ndarray"
    )


def test_inputs_with_different_numbers_of_rows_are_refused(pipe, models):
    with pytest.raises(hami.RequestError) as error:
        pipe(model=str(models.sum_and_difference()))({"data": [floats([1, 2]), floats([1, 2], [3, 4])]})
    assert message(error) == "OnnxTensor: all inputs must have the same number of rows (axis 0), got a [1, 2], b [2, 2]"


def test_a_request_size_other_than_the_number_of_rows_is_refused(pipe, models):
    with pytest.raises(hami.RequestError) as error:
        pipe(model=str(models.double()), max=8)({"data": floats([1, 2]), "request_size": 2})
    assert message(error) == ('OnnxTensor: "request_size" must be the number of rows (axis 0) of the data, 1, got 2')


def test_a_request_without_data_is_an_error(pipe, models):
    with pytest.raises(hami.RequestError) as error:
        pipe(model=str(models.double()))({"image": 1})
    assert message(error) == (
        'OnnxTensor: the request has no key "data", and none of the model\'s inputs ["x"]; its keys are ["image"]'
    )


def test_the_next_request_succeeds_after_a_failed_request(pipe, models):
    double = pipe(model=str(models.double()))
    request = {"data": "text", "result": "stale"}
    with pytest.raises(hami.DataTypeError):
        double(request)
    assert "result" not in request
    assert double({"data": floats([1, 2])})["result"].tolist() == [[2, 4]]


def test_each_thread_gets_its_own_results(pipe, models):
    from concurrent.futures import ThreadPoolExecutor

    double = pipe(model=str(models.double()), instance_num=3, max=4)
    with ThreadPoolExecutor(8) as threads:
        results = list(threads.map(lambda i: double({"data": floats([i, i])})["result"].tolist(), range(200)))
    assert results == [[[2 * i, 2 * i]] for i in range(200)]


def test_an_integer_model_returns_integers(pipe, models):
    result = pipe(model=str(models.double(kind=TensorProto.INT64)))({"data": np.array([[1, 2]])})["result"]
    assert result.dtype == "int64"


@pytest.mark.parametrize(("batched", "batches"), [(True, 1), (False, 8)])
def test_a_node_without_max_runs_the_requests_of_a_call_together_if_they_are_joined(
    models, batched: bool, batches: int
) -> None:
    requests = [{"data": np.float32([[number, 1]])} for number in range(8)]
    with hami.pipe({"backend": "OnnxTensor", "model": str(models.double(width=2)), "batched": batched}) as pipe:
        results = [request["result"].tolist() for request in pipe(requests)]
        assert pipe.stats()["default"].batches == batches
    assert results == [[[2.0 * number, 2.0]] for number in range(8)]


@pytest.mark.parametrize(
    ("kind", "data", "text"),
    [
        (TensorProto.INT64, [[np.nan, 1.0]], "expects int64, got float64 with the value nan"),
        (TensorProto.INT64, np.array([[np.inf, 1.0]]), "expects int64, got float64 with the value inf"),
        (TensorProto.INT64, [[1.5, 1.0]], "expects int64, got float64 with the value 1.5"),
        (TensorProto.FLOAT, [[1e39, 1.0]], "expects float32, got float64 with the value 1e+39"),
        (TensorProto.FLOAT, "text", "expects float32, got text"),
        (TensorProto.FLOAT, ["a", "b"], "expects float32, got text"),
        (TensorProto.FLOAT, np.array(["a", "b"]), "expects float32, got text"),
    ],
)
def test_values_that_the_declared_type_does_not_have_are_refused_alone(pipe, models, kind, data, text):
    running = pipe(model=str(models.double(width=2, kind=kind)))
    with pytest.raises(hami.DataTypeError) as error:
        running({"data": data})
    assert text in message(error)
    assert running({"data": [[1, 2]]})["result"].tolist() == [[2, 4]]


@pytest.mark.parametrize("dtype", [np.float32, np.int64])
def test_no_rows_have_a_result_without_rows(pipe, models, dtype):
    result = pipe(model=str(models.double(width=2)))({"data": np.zeros((0, 2), dtype)})["result"]
    assert (result.shape, result.dtype) == ((0, 2), "float32")


def test_an_input_that_is_called_data_is_one_of_several(pipe, tmp_path):
    port = (TensorProto.FLOAT, ["n", 2])
    node = helper.make_node("Sub", ["data", "other"], ["y"])
    model = str(save(tmp_path / "data.onnx", [node], {"data": port, "other": port}, {"y": port}))
    one, two, running = floats([1, 1]), floats([3, 5]), pipe(model=model)
    for request in ({"data": two, "other": one}, {"data": {"data": two, "other": one}}, {"data": [two, one]}):
        assert running(request)["result"].tolist() == [[2, 4]]
    for request, text in (
        ({"data": {"data": two}}, "the model has the inputs ['data', 'other'], got a dict with the keys ['data']"),
        ({"other": two}, 'of which the request lacks ["data"]; its keys are ["other"]'),
    ):
        with pytest.raises(hami.RequestError) as error:
            running(request)
        assert text in message(error)


def test_a_file_of_arrays_with_other_names_fails_alone(models, tmp_path, capsys):
    np.savez(tmp_path / "a.npz", z=floats([1, 2]))
    np.savez(tmp_path / "b.npz", x=floats([1, 2]))
    model = str(models.double(width=2))
    assert main(["run", model, str(tmp_path / "a.npz"), str(tmp_path / "b.npz")]) == 1
    found = capsys.readouterr()
    assert "a.npz: OnnxTensor: the model has the inputs ['x'], got a dict with the keys ['z']" in found.err
    assert found.out.endswith("b.npz:\n  2,4\n")
