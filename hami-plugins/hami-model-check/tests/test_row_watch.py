"""RowWatch: one row of a few batches runs again alone, and a difference ends the joining."""

from __future__ import annotations

import logging
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from hami_model_check.row_watch import EVERY, RowWatch, shared_watch

OWN = np.float32([[1, 2]])


def test_one_in_so_many_batches_is_due():
    watch = RowWatch("AcmeTensor", "m.onnx", nodes=1)
    assert sum(watch.is_due() for _ in range(10 * EVERY)) == 10
    with ThreadPoolExecutor(8) as threads:
        due = list(threads.map(lambda _: sum(watch.is_due() for _ in range(EVERY)), range(16)))
    assert sum(due) == 16


def test_batches_that_ran_elsewhere_count_and_the_next_one_is_due():
    watch = RowWatch("Test", "m", nodes=1, every=4)
    watch.skip(3)
    assert [watch.is_due() for _ in range(2)] == [True, False]
    watch.skip(5)  # the eighth is among them
    assert [watch.is_due() for _ in range(2)] == [True, True]  # and the twelfth is due itself
    assert not watch.is_due()


class Listener:
    def __init__(self):
        self.calls = 0

    def stopped(self):
        self.calls += 1


@pytest.mark.parametrize("stops", [True, False])
def test_who_joins_elsewhere_hears_of_the_end(stops):
    watch, listener = RowWatch("Test", "m", nodes=1, stops=stops), Listener()
    watch.when_stopped(listener.stopped)
    watch.when_stopped(Listener().stopped)  # gone already
    watch.compare(["y"], [np.ones(2)], lambda: [np.zeros(2)], rows=2)
    assert listener.calls == int(stops)


def test_equal_rows_are_joined_on_and_the_largest_difference_is_kept():
    watch = RowWatch("AcmeTensor", "m.onnx", nodes=1)
    assert watch.compare(["y"], [OWN * np.float32(1 + 1e-6)], lambda: [OWN], rows=8)
    assert watch.joins
    assert 0 < watch.largest < 1e-5
    assert watch.finding == ""


@pytest.mark.parametrize("stops", [True, False])
def test_a_difference_ends_the_joining_and_is_logged_once(caplog, stops):
    watch = RowWatch("AcmeTensor", "m.onnx", nodes=1, stops=stops)
    with caplog.at_level(logging.WARNING, "hami.rows"):
        for _ in range(3):
            assert not watch.compare(["y"], [OWN + 1], lambda: [OWN], rows=8)
    assert watch.joins is not stops
    (record,) = caplog.records
    what = (
        "requests run one by one from now on; set batched = false"
        if stops
        else "requests are still joined, because batched = true"
    )
    assert record.getMessage() == (
        'AcmeTensor: rows of m.onnx depend on their neighbours: output "y" of a row is 1 alone and 2 in a batch of 8; '
        + what
    )
    assert record.getMessage() == f"AcmeTensor: {watch.finding}"


def test_a_row_that_cannot_run_alone_is_no_finding():
    def fail():
        raise RuntimeError("busy")

    watch = RowWatch("AcmeTensor", "m.onnx", nodes=1)
    assert watch.compare(["y"], [OWN], fail, rows=8)
    assert watch.joins


def test_all_users_of_an_opened_model_share_its_watch():
    class Session:
        pass

    session = Session()
    watch = shared_watch(session, "AcmeTensor", "m.onnx", nodes=1)
    assert shared_watch(session, "AcmeTensor", "m.onnx", nodes=1) is watch
    assert shared_watch(Session(), "AcmeTensor", "m.onnx", nodes=1) is not watch
    assert shared_watch(session, "AcmeTensor", "m.onnx", nodes=1, stops=False) is not watch
