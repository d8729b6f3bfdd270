"""A failed run does not disturb requests after it or beside it."""

from __future__ import annotations

import threading

import hami
import numpy as np
import pytest
from conftest import floats, values

GOOD = [[0.5, 0.5]]


def row(width: int) -> dict:
    return {"data": np.ones((1, width), np.float32)}


def test_requests_after_a_failed_run_get_their_results(pipe, models):
    """OpenVINO's CPU plugin reuses the shapes of a failed run unless the model is compiled again."""
    each = pipe(model=str(models.of_width_two()))
    for _ in range(3):
        assert values(each(row(2))) == GOOD
        with pytest.raises(hami.RequestError, match="the model failed on x float32 "):
            each(row(3))
    assert values(each(row(2))) == GOOD


def test_a_failed_run_does_not_disturb_other_instances_and_pipes_of_the_model(pipe, models):
    path = str(models.of_width_two())
    pipes = [pipe(model=path), pipe(model=path, instance_num=3)]
    for failing in pipes:
        with pytest.raises(hami.RequestError):
            failing(row(3))
        for _ in range(4):
            assert [values(each(row(2))) for each in pipes] == [GOOD, GOOD]


def test_requests_after_a_run_that_failed_because_of_its_values_get_their_results(pipe, models):
    each = pipe(model=str(models.widened(rows=1)))
    assert values(each({"data": [floats([1, 1]), np.array([[2]])]})) == [[3, 3]]
    with pytest.raises(hami.RequestError):
        each({"data": [floats([1, 1]), np.array([[3]])]})
    assert values(each({"data": [floats([1, 1]), np.array([[2]])]})) == [[3, 3]]


@pytest.mark.parametrize("settings", [{}, {"hint": "throughput", "streams": 2}])
def test_requests_beside_a_failed_run_get_their_results(pipe, models, settings):
    each = pipe(model=str(models.of_width_two()), instance_num=4, **settings)
    wrong = []

    def call(width: int) -> None:
        for _ in range(40):
            try:
                found = values(each(row(width)))
            except hami.RequestError:
                found = "failed"
            if found != (GOOD if width == 2 else "failed"):
                wrong.append((width, found))

    threads = [threading.Thread(target=call, args=[width]) for width in (2, 2, 3, 2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
