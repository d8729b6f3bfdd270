"""OC-SORT beside ByteTrack: few changes of id on generated sequences, and what it does better; BoT-SORT's messages."""

from __future__ import annotations

import sys
import types

import hami
import numpy as np
import pytest
from sequences import ByOverlap, sequence, switches

from hami_vision import Detections
from hami_vision.oc_sort import OcSortTracker
from hami_vision.tracking import Tracker

METHODS = {"bytetrack": Tracker, "oc-sort": OcSortTracker}


@pytest.mark.parametrize("method", METHODS)
def test_objects_that_cross_and_hide_change_their_id_half_as_often_as_by_overlap_alone(method):
    """In each sequence; in all four, overlap with the last box alone changes 62 ids, ByteTrack 18 and OC-SORT 17."""
    for seed in range(4):
        frames = list(sequence(seed))
        changes, reference = (
            switches(frames, [tracker.update(each.found, each.time) for each in frames])
            for tracker in (METHODS[method](), ByOverlap())
        )
        assert 2 * changes <= reference, seed


@pytest.mark.parametrize("method", METHODS)
def test_dropped_frames_and_permuted_rows_change_no_id(method):
    frames = [each for i, each in enumerate(sequence(7, objects=3, gap=0)) if not 40 <= i < 50]
    straight, turned = METHODS[method](), METHODS[method]()
    given: set[int] = set()
    for each in frames:
        ids = straight.update(each.found, each.time)
        np.testing.assert_array_equal(turned.update(each.found[::-1], each.time)[::-1] >= 0, ids >= 0)
        given |= {*ids.tolist()}
    assert given == {-1, 0, 1, 2}


def at(*places: tuple[float, float], scores=None) -> Detections:
    boxes = [[x, y, x + 20, y + 20] for x, y in places]
    return Detections(boxes, scores or [0.9] * len(places), [0] * len(places))


def test_an_object_that_stops_while_it_is_hidden_is_found_where_it_was_seen_last():
    """The prediction has moved on; ByteTrack, which only looks there, gives a new id."""
    for method, expected in ((OcSortTracker, 0), (Tracker, 1)):
        tracker = method()
        for i in range(20):
            tracker.update(at((8.0 * i, 50)), i / 25)
        for i in range(20, 26):
            tracker.update(at(), i / 25)
        tracker.update(at((160, 50)), 26 / 25)
        assert tracker.update(at((160, 50)), 27 / 25).tolist() == [expected]


def test_a_track_found_again_goes_on_with_the_speed_between_both_sightings():
    """It turns back while it is hidden. Without the re-update, the filter would still go the old way."""
    tracker = OcSortTracker()
    for i in range(20):
        tracker.update(at((5.0 * i, 50)), i / 25)
    for i in range(20, 28):
        tracker.update(at(), i / 25)
    assert tracker.update(at((85, 50)), 28 / 25).tolist() == [0]
    assert abs(tracker._motion.velocity[0, 0]) < 40  # pixels per second; 125 before


def test_a_low_score_or_nan_continues_nothing_and_the_next_sight_does():
    tracker = OcSortTracker()
    tracker.update(at((0, 0)), 0)
    assert tracker.update(at((1, 0), scores=[0.2]), 0.1).tolist() == [-1]
    assert tracker.update(at((np.nan, 0)), 0.2).tolist() == [-1]
    assert tracker.update(at((2, 0)), 0.3).tolist() == [0]


def test_a_track_that_is_lost_too_long_is_forgotten_with_all_its_state():
    tracker = OcSortTracker()
    for i in range(200):  # another flicker each
        tracker.update(at(((37 * i) % 500, (91 * i) % 400)), i)
    assert len(tracker._sightings) == len(tracker._ids) <= 2
    assert len(tracker._times) <= 2


def test_the_method_is_a_parameter_and_ids_do_not_depend_on_streams():
    stateful = "StateFul[Batching, InstanceDispatcher]"
    config = {
        "node_entrypoint": f"List[InstancesRegister[Reflect[backend]], Register[{stateful}]]",
        "backend": "TrackObjects",
        "method": "oc-sort",
        "max": 8,
    }
    with hami.pipe(config) as pipe:
        for i in range(5):
            requests = [{"data": at((5.0 * i, 9)), "req_id": name, "time": i / 10} for name in range(8)]
            pipe(requests)
            assert [request["result"].ids.tolist() for request in requests] == [[0]] * 8
    with pytest.raises(hami.ConfigError, match="bytetrack"):
        hami.pipe("StateFul[TrackObjects(method=sort)]")


def test_bot_sort_without_its_package_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "supervision", None)
    with pytest.raises(hami.ConfigError, match="pip install trackers, and then again opencv-python-headless"):
        hami.pipe("StateFul[TrackObjects(method=bot-sort)]")


def test_bot_sort_gets_picture_and_time_and_its_rows_are_put_back_in_order(monkeypatch):
    """What the package is given; tests/compare_trackers.py runs it."""
    seen = []

    class Given(types.SimpleNamespace):
        def __len__(self):
            return len(self.xyxy)

    class Theirs:
        def __init__(self, **_):
            pass

        def update(self, found, frame, timestamp):
            seen.append((frame.shape, timestamp))
            order = slice(None, None, -1)
            rows = found.data["row"][order]
            return Given(xyxy=found.xyxy[order], data={"row": rows}, tracker_id=rows + 10)

    monkeypatch.setitem(sys.modules, "supervision", types.SimpleNamespace(Detections=Given))
    monkeypatch.setitem(sys.modules, "trackers", types.SimpleNamespace(BoTSORTTracker=Theirs))
    found = at((0, 0), (np.nan, 0), (50, 0))
    with hami.pipe("StateFul[TrackObjects(method=bot-sort)]") as pipe:
        request = {"data": found, "image": np.zeros((4, 6, 3), np.uint8), "req_id": 1, "time": 0.5}
        assert pipe(request)["result"].ids.tolist() == [10, -1, 12]
        with pytest.raises(hami.RequestError, match="must be after that of the frame before"):
            pipe(dict(request))
        with pytest.raises(hami.RequestError, match="bot-sort needs the picture in the key `image`"):
            pipe({"data": found, "req_id": 1, "time": 1})
    assert seen == [((4, 6, 3), 0.5)]
