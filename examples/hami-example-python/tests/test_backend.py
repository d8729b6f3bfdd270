"""Tests of HamiExamplePython: HAMi finds it, it computes, and it follows the rules for backends."""

import hami
import pytest
from hami_build.testing import check_backend


def test_plugin_is_found():
    states = {record.distribution: record.state for record in hami.plugins()}
    assert states["hami-example-python"] in ("ok", "not loaded")
    assert hami.backends()["HamiExamplePython"].owner == "hami-example-python"


def test_it_adds_the_step():
    with hami.pipe("HamiExamplePython(step=2)") as pipe:
        assert pipe({"data": 40})["result"] == 42


def test_text_raises_a_type_error():
    with hami.pipe("HamiExamplePython") as pipe, pytest.raises(TypeError):
        pipe({"data": "forty"})


def test_it_follows_the_rules_for_backends():
    check_backend("HamiExamplePython", {"step": 2}, {"data": 1})
