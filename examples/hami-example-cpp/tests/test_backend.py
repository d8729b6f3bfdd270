"""HamiExampleCpp is found, answers, and keeps the rules of backends."""

import hami
import hami.testing
import pytest


def test_plugin_is_found():
    states = {record.distribution: record.state for record in hami.plugins()}
    assert states["hami-example-cpp"] in ("ok", "unused")
    assert hami.backends()["HamiExampleCpp"].owner == "hami-example-cpp"


def test_it_adds():
    with hami.pipe("HamiExampleCpp(step=2)") as pipe:
        assert pipe({"data": 40})["result"] == 42


def test_it_says_what_it_does_not_take():
    with hami.pipe("HamiExampleCpp") as pipe, pytest.raises(TypeError):
        pipe({"data": "forty"})


def test_it_keeps_the_rules():
    hami.testing.check_backend("HamiExampleCpp", {"step": 2}, {"data": 1})
