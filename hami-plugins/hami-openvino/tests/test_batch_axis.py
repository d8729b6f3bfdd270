"""OpenvinoTensor: whether axis 0 is a batch, and models of a fixed one."""

from __future__ import annotations

import hami
import numpy as np
import pytest
from conftest import floats, values


def test_a_fixed_batch_axis_takes_exactly_its_rows(pipe, models):
    fixed = pipe(model=str(models.double(rows=3)), batching_timeout=1000)
    requests = [{"data": floats([i, i])} for i in range(3)]
    fixed(requests)
    assert [values(request) for request in requests] == [[[0, 0]], [[2, 2]], [[4, 4]]]
    whole = fixed({"data": floats([1, 1], [2, 2], [3, 3]), "request_size": 3})
    assert values(whole) == [[2, 2], [4, 4], [6, 6]]


def outcomes(pipe, requests):
    """The result of each request, or the kind of error it got."""
    errors = {}
    try:
        pipe(requests)
    except hami.BatchError as error:
        errors = dict(error.errors)
    return [type(errors[i]) if i in errors else values(request) for i, request in enumerate(requests)]


def test_a_fixed_batch_axis_answers_the_neighbours_of_a_bad_request(pipe, models):
    fixed = pipe(model=str(models.double(rows=3, width=2)), batching_timeout=1000)
    requests = [{"data": floats([i, i])} for i in range(6)]
    requests[1] = {"data": "text"}
    requests[5] = {"data": floats(5, 5)}
    expected = [[[2 * i, 2 * i]] for i in range(6)]
    expected[1], expected[5] = hami.DataTypeError, [10, 10]
    assert outcomes(fixed, requests) == expected


def test_a_run_of_a_fixed_batch_axis_that_fails_fails_only_those_that_fail_alone(pipe, models):
    """Alone, the rows that the model wants beyond a request's own are made up."""
    fixed = pipe(model=str(models.widened(rows=3)), batching_timeout=1000)
    requests = [{"data": [floats([i, i]), np.array([[3 if i == 4 else 2]])]} for i in range(6)]
    expected = [[[i + 2, i + 2]] for i in range(6)]
    expected[4] = hami.RequestError
    assert outcomes(fixed, requests) == expected
    whole = fixed({"data": [np.ones((3, 2), np.float32), np.full((3, 1), 2)], "request_size": 3})
    assert values(whole) == [[3, 3]] * 3


def test_a_fixed_batch_axis_runs_each_shape_by_itself(pipe, models):
    fixed = pipe(model=str(models.double(rows=4)), batching_timeout=1000)
    requests = [{"data": np.full((1, width), width, np.float32)} for width in (3, 4, 3, 5)]
    assert outcomes(fixed, requests) == [[[2.0 * w] * w] for w in (3, 4, 3, 5)]


@pytest.mark.parametrize("rows", [0, 2])
def test_a_fixed_batch_axis_refuses_another_number_of_rows(pipe, models, rows):
    requests = [{"data": np.ones((rows if i == 1 else 1, 2), np.float32)} for i in range(3)]
    with pytest.raises(hami.BatchError) as error:
        pipe(model=str(models.double(rows=3)), batching_timeout=1000)(requests)
    expected = f"OpenvinoTensor: the model takes exactly 3 rows (its axis 0), this batch has {rows + 2}"
    assert [(index, str(reason)) for index, reason in error.value.errors] == [(i, expected) for i in range(3)]


def test_a_fixed_batch_axis_of_one_runs_one_by_one(pipe, models):
    single = pipe(model=str(models.double(rows=1)))
    requests = [{"data": floats([i, i])} for i in range(4)]
    single(requests)
    assert [values(request) for request in requests] == [[[2 * i, 2 * i]] for i in range(4)]


def test_max_above_a_fixed_batch_axis_is_a_config_error(pipe, models):
    with pytest.raises(hami.ConfigError):
        pipe(model=str(models.double(rows=3)), max=4)


def test_a_model_without_a_common_batch_axis_runs_request_by_request(pipe, models):
    requests = [{"data": [floats([i, i]), np.array(10, np.float32)]} for i in range(3)]
    pipe(model=str(models.add_scalar()))(requests)
    assert [values(request) for request in requests] == [[[10, 10]], [[11, 11]], [[12, 12]]]


@pytest.mark.parametrize("batched", [{}, {"batched": False}])
def test_an_output_that_is_not_per_row_is_computed_for_each_alone(pipe, models, batched):
    requests = [{"data": floats([0, 1])}, {"data": floats([1, 1])}, {"data": floats([0, 0])}]
    pipe(model=str(models.positives()), **batched)(requests)
    assert [values(request) for request in requests] == [[[0, 1]], [[0, 0], [0, 1]], []]


def test_a_batch_axis_that_turns_out_to_be_none_is_computed_for_each_alone(pipe, models):
    requests = [{"data": floats([1, 1])}, {"data": floats([0, 0])}, {"data": floats([1, 1])}]
    pipe(model=str(models.positives()), max=8, batched=True)(requests)
    assert [values(request) for request in requests] == [[[0, 0], [0, 1]], [], [[0, 0], [0, 1]]]


def test_rows_that_follow_from_the_shapes_are_a_batch_without_being_named(pipe, models):
    requests = [{"data": floats([i, i])} for i in range(5)]
    pipe(model=str(models.double(rows=None)), max=8)(requests)
    assert [values(request) for request in requests] == [[[2 * i, 2 * i]] for i in range(5)]


def is_batched(pipe, path) -> bool:
    try:
        pipe(model=str(path), max=8)
    except hami.ConfigError:
        return False
    return True


def test_inputs_whose_rows_may_differ_are_computed_for_each_alone(pipe, models):
    assert not is_batched(pipe, models.times_mean())
    requests = [{"data": [floats([1, 1]), np.full((rows, 2), rows, np.float32)]} for rows in (1, 2, 3)]
    pipe(model=str(models.times_mean()))(requests)
    assert [values(request) for request in requests] == [[[1, 1]], [[2, 2]], [[3, 3]]]


def test_inputs_are_a_batch_where_each_is_tied_to_each(pipe, models):
    assert not is_batched(pipe, models.two_pairs(tied=False))
    assert is_batched(pipe, models.two_pairs(tied=True))


def test_an_axis_that_grows_with_the_rows_is_computed_for_each_alone(pipe, models):
    """The rows of one request would meet those of the others."""
    assert not is_batched(pipe, models.products())
    assert not is_batched(pipe, models.symmetric_sums())
    requests = [{"data": np.full((rows, 2), rows, np.float32)} for rows in (2, 1)]
    pipe(model=str(models.products()))(requests)
    assert [values(request) for request in requests] == [[[8, 8], [8, 8]], [[2]]]


def test_a_free_width_with_rules_of_its_own_leaves_the_rows_a_batch(pipe, models):
    assert is_batched(pipe, models.pooled_and_back())


def test_max_is_refused_where_rows_are_no_batch(pipe, models):
    with pytest.raises(hami.ConfigError):
        pipe(model=str(models.positives()), max=8)
    with pytest.raises(hami.ConfigError):
        pipe(model=str(models.double()), max=8, batched=False)


def test_a_model_that_cannot_be_batched_says_so(pipe, models):
    with pytest.raises(hami.ConfigError) as error:
        pipe(model=str(models.add_scalar()), batched=True)
    assert (
        "OpenvinoTensor: batched = true, but not all have the same axis 0: x float32 [?, 2], s float32 [], "
        "y float32 [?, 2]"
    ) in str(error.value)
