"""OpenvinoTensor: detection of the batch axis, and models with a fixed number of rows."""

from __future__ import annotations

import hami
import numpy as np
import pytest
from conftest import floats, save, values
from onnx import TensorProto, helper

FLOAT = TensorProto.FLOAT


def test_a_batch_of_a_fixed_model_has_exactly_its_rows(pipe, models):
    fixed = pipe(model=str(models.double(rows=3)), batching_timeout=1000)
    requests = [{"data": floats([i, i])} for i in range(3)]
    fixed(requests)
    assert [values(request) for request in requests] == [[[0, 0]], [[2, 2]], [[4, 4]]]
    whole = fixed({"data": floats([1, 1], [2, 2], [3, 3]), "request_size": 3})
    assert values(whole) == [[2, 2], [4, 4], [6, 6]]


def outcomes(pipe, requests):
    """Return for each request its result, or the type of its error."""
    errors = {}
    try:
        pipe(requests)
    except hami.BatchError as error:
        errors = dict(error.errors)
    return [type(errors[i]) if i in errors else values(request) for i, request in enumerate(requests)]


def test_a_bad_request_does_not_fail_its_batch_of_a_fixed_model(pipe, models):
    fixed = pipe(model=str(models.double(rows=3, width=2)), batching_timeout=1000)
    requests = [{"data": floats([i, i])} for i in range(6)]
    requests[1] = {"data": "text"}
    requests[5] = {"data": floats(5, 5)}
    expected = [[[2 * i, 2 * i]] for i in range(6)]
    expected[1], expected[5] = hami.DataTypeError, [10, 10]
    assert outcomes(fixed, requests) == expected


def test_a_failed_run_of_a_fixed_model_fails_only_the_requests_that_cause_it(pipe, models):
    """Each request is run again by itself, padded to the rows of the model."""
    fixed = pipe(model=str(models.widened(rows=3)), batched=True, batching_timeout=1000)
    requests = [{"data": [floats([i, i]), np.array([[3 if i == 4 else 2]])]} for i in range(6)]
    expected = [[[i + 2, i + 2]] for i in range(6)]
    expected[4] = hami.RequestError
    assert outcomes(fixed, requests) == expected
    whole = fixed({"data": [np.ones((3, 2), np.float32), np.full((3, 1), 2)], "request_size": 3})
    assert values(whole) == [[3, 3]] * 3


def test_a_fixed_model_runs_each_shape_of_a_batch_separately(pipe, models):
    fixed = pipe(model=str(models.double(rows=4)), batching_timeout=1000)
    requests = [{"data": np.full((1, width), width, np.float32)} for width in (3, 4, 3, 5)]
    assert outcomes(fixed, requests) == [[[2.0 * w] * w] for w in (3, 4, 3, 5)]


@pytest.mark.parametrize("rows", [1, 2, 3])
def test_a_short_batch_of_a_fixed_model_is_padded(pipe, models, rows):
    request = {"data": np.full((rows, 2), 5, np.float32), "request_size": rows}
    assert values(pipe(model=str(models.double(rows=3)))(request)) == [[10, 10]] * rows


def test_requests_of_a_fixed_model_fill_as_many_batches_as_they_need(pipe, models):
    requests = [{"data": np.full((rows, 2), rows, np.float32)} for rows in (1, 2, 0, 3, 2)]
    expected = [[[2 * rows, 2 * rows]] * rows for rows in (1, 2, 0, 3, 2)]
    assert outcomes(pipe(model=str(models.double(rows=3)), batching_timeout=1000), requests) == expected


def test_a_fixed_model_rejects_more_rows_than_it_has(pipe, models):
    requests = [{"data": np.ones((rows, 2), np.float32)} for rows in (1, 4)]
    with pytest.raises(hami.BatchError) as error:
        pipe(model=str(models.double(rows=3)), batching_timeout=1000)(requests)
    expected = "OpenvinoTensor: the model takes batches of exactly 3 rows (axis 0), got 4"
    assert [(index, str(reason)) for index, reason in error.value.errors] == [(1, expected)]
    assert values(requests[0]) == [[2, 2]]


def test_a_fixed_model_of_one_row_runs_request_by_request(pipe, models):
    single = pipe(model=str(models.double(rows=1)))
    requests = [{"data": floats([i, i])} for i in range(4)]
    single(requests)
    assert [values(request) for request in requests] == [[[2 * i, 2 * i]] for i in range(4)]


def test_max_above_the_rows_of_a_fixed_model_is_a_config_error(pipe, models):
    with pytest.raises(hami.ConfigError):
        pipe(model=str(models.double(rows=3)), max=4)


def test_a_model_without_a_common_batch_axis_runs_request_by_request(pipe, models):
    requests = [{"data": [floats([i, i]), np.array(10, np.float32)]} for i in range(3)]
    pipe(model=str(models.add_scalar()))(requests)
    assert [values(request) for request in requests] == [[[10, 10]], [[11, 11]], [[12, 12]]]


@pytest.mark.parametrize("batched", [{}, {"batched": False}])
def test_requests_run_separately_if_an_output_has_no_row_per_input_row(pipe, models, batched):
    requests = [{"data": floats([0, 1])}, {"data": floats([1, 1])}, {"data": floats([0, 0])}]
    pipe(model=str(models.nonzero_indices()), **batched)(requests)
    assert [values(request) for request in requests] == [[[0, 1]], [[0, 0], [0, 1]], []]


def test_requests_run_separately_if_batched_is_set_wrongly(pipe, models):
    requests = [{"data": floats([1, 1])}, {"data": floats([0, 0])}, {"data": floats([1, 1])}]
    pipe(model=str(models.nonzero_indices()), max=8, batched=True)(requests)
    assert [values(request) for request in requests] == [[[0, 0], [0, 1]], [], [[0, 0], [0, 1]]]


def test_an_unnamed_axis_0_is_detected_as_a_batch_axis(pipe, models):
    requests = [{"data": floats([i, i])} for i in range(5)]
    pipe(model=str(models.double(rows=None)), max=8)(requests)
    assert [values(request) for request in requests] == [[[2 * i, 2 * i]] for i in range(5)]


def is_batched(pipe, path) -> bool:
    try:
        pipe(model=str(path), max=8)
    except hami.ConfigError:
        return False
    return True


def test_requests_are_joined_if_an_input_that_the_rows_share_is_equal(pipe, models):
    """y = x * mean of s over its rows, which are not those of x."""
    shared = pipe(model=str(models.times_mean()), max=8)
    requests = [{"data": [floats([i, 1]), np.full((2, 2), 1 + (i > 2), np.float32)]} for i in range(5)]
    before = shared.stats()["default"].batches
    shared(requests)
    assert shared.stats()["default"].batches == before + 1
    assert [values(request) for request in requests] == [[[i * (1 + (i > 2)), 1 + (i > 2)]] for i in range(5)]
    requests = [{"data": [floats([1, 1]), np.full((rows, 2), rows, np.float32)]} for rows in (1, 2, 3)]
    shared(requests)
    assert [values(request) for request in requests] == [[[1, 1]], [[2, 2]], [[3, 3]]]


def test_rows_are_a_batch_only_if_they_are_the_same_for_all_inputs(pipe, models):
    assert not is_batched(pipe, models.two_pairs(tied=False))
    assert is_batched(pipe, models.two_pairs(tied=True))


def test_requests_run_separately_if_another_axis_depends_on_the_rows(pipe, models):
    """Joined rows of one request would influence the results of others."""
    assert not is_batched(pipe, models.products())
    assert not is_batched(pipe, models.symmetric_sums())
    requests = [{"data": np.full((rows, 2), rows, np.float32)} for rows in (2, 1)]
    pipe(model=str(models.products()))(requests)
    assert [values(request) for request in requests] == [[[8, 8], [8, 8]], [[2]]]


def test_a_dynamic_width_with_constraints_does_not_prevent_batching(pipe, models):
    assert is_batched(pipe, models.pooled_and_back())


def test_max_is_rejected_without_a_batch_axis(pipe, models):
    with pytest.raises(hami.ConfigError):
        pipe(model=str(models.nonzero_indices()), max=8)
    with pytest.raises(hami.ConfigError):
        pipe(model=str(models.double()), max=8, batched=False)


def test_batched_is_rejected_without_a_common_axis_0(pipe, models):
    with pytest.raises(hami.ConfigError) as error:
        pipe(model=str(models.total()), batched=True)
    assert (
        "OpenvinoTensor: batched = true needs the same axis 0 in all inputs and outputs, got x float32 [?, 2], "
        "y float32 [], size int64 [1]"
    ) in str(error.value)


def turned(path, batch):
    """x and y are [time, batch, 2], and sums [batch, time]: y adds up x over the time, sums adds the last axis of y."""
    nodes = [
        helper.make_node("CumSum", ["x", "first"], ["y"]),
        helper.make_node("ReduceSum", ["y", "last"], ["added"], keepdims=0),
        helper.make_node("Transpose", ["added"], ["sums"], perm=[1, 0]),
    ]
    ports = {"x": (FLOAT, ["t", batch, 2])}, {"y": (FLOAT, ["t", batch, 2]), "sums": (FLOAT, [batch, "t"])}
    return save(path, nodes, *ports, {"first": np.array(0), "last": np.array([2])})


def check_turned(data, result):
    np.testing.assert_array_equal(hami.to_numpy(result["y"]), data.cumsum(0))
    np.testing.assert_array_equal(hami.to_numpy(result["sums"]), data.cumsum(0).sum(-1).T)


@pytest.mark.parametrize("batch", ["n", None])
def test_requests_are_joined_along_another_axis_than_0(pipe, tmp_path, batch):
    turning = pipe(model=str(turned(tmp_path / "m.onnx", batch)), max=4, batching_timeout=1000)
    random = np.random.default_rng(3)
    data = [random.integers(0, 99, (3, rows, 2)).astype(np.float32) for rows in (1, 2, 1)]
    before = turning.stats()["default"].batches
    requests = turning([{"data": each, "request_size": each.shape[1]} for each in data])
    assert turning.stats()["default"].batches == before + 1
    for each, request in zip(data, requests, strict=True):
        check_turned(each, request["result"])


@pytest.mark.parametrize("rows", [0, 1, 3])
def test_any_number_of_rows_along_another_axis_than_0(pipe, tmp_path, rows):
    data = np.arange(rows * 6, dtype=np.uint8).reshape(rows, 3, 2).transpose(1, 0, 2)
    check_turned(data.astype(np.float32), pipe(model=str(turned(tmp_path / "m.onnx", "n")))({"data": data})["result"])


def test_data_without_its_batch_axis_gets_a_result_without_it(pipe, tmp_path):
    turning = pipe(model=str(turned(tmp_path / "m.onnx", "n")), max=4)
    requests = turning([{"data": np.full((3, 2), i, np.float32)} for i in range(3)])
    for i, request in enumerate(requests):
        assert hami.to_numpy(request["result"]["y"]).tolist() == [[i * t, i * t] for t in (1, 2, 3)]
        assert hami.to_numpy(request["result"]["sums"]).tolist() == [2 * i * t for t in (1, 2, 3)]


def test_request_size_is_the_number_of_rows_along_their_axis(pipe, tmp_path):
    turning = pipe(model=str(turned(tmp_path / "m.onnx", "n")))
    with pytest.raises(hami.RequestError, match=r"must be the number of rows \(axis 1\) of the data, 2, got 3"):
        turning({"data": np.ones((3, 2, 2), np.float32), "request_size": 3})


def test_an_output_that_all_rows_share_is_given_to_each(pipe, tmp_path):
    nodes = [helper.make_node("Relu", ["x"], ["y"]), helper.make_node("Identity", ["two"], ["constant"])]
    ports = {"x": (FLOAT, ["n", 2])}, {"y": (FLOAT, ["n", 2]), "constant": (FLOAT, [2])}
    model = pipe(model=str(save(tmp_path / "m.onnx", nodes, *ports, {"two": np.float32([1, 2])})), max=8)
    requests = model([{"data": np.full((rows, 2), rows, np.float32)} for rows in (1, 0, 2)])
    for rows, request in zip((1, 0, 2), requests, strict=True):
        assert hami.to_numpy(request["result"]["y"]).tolist() == [[rows, rows]] * rows
        assert hami.to_numpy(request["result"]["constant"]).tolist() == [1, 2]
