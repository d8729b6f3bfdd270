"""The exception tree: base classes, texts and pickling."""

from __future__ import annotations

import pickle
import sys
from typing import Any

import pytest
from hami import _errors as errors

TREE = {
    "ConfigError": "Error",
    "BackendNotFound": "Error",
    "PluginError": "Error",
    "DataTypeError": "Error",
    "RequestError": "Error",
    "NoResult": "RequestError",
    "QueueFull": "RequestError",
    "DeadlineExceeded": "RequestError",
    "PipeClosed": "RequestError",
    "ReentrantCall": "RequestError",
    "BatchError": "Error",
    "NotFound": "Error",
    "OutOfRange": "Error",
    "AlreadyExists": "Error",
    "BackendExit": "RequestError",
}
ALSO = {
    "DataTypeError": TypeError,
    "DeadlineExceeded": TimeoutError,
    "NotFound": KeyError,
    "AlreadyExists": KeyError,
    "OutOfRange": IndexError,
}


@pytest.mark.parametrize(("name", "parent"), TREE.items())
def test_each_error_descends_from_its_parent_in_the_tree(name: str, parent: str) -> None:
    assert issubclass(getattr(errors, name), getattr(errors, parent))
    assert issubclass(getattr(errors, name), ALSO.get(name, Exception))


def test_the_tree_is_complete() -> None:
    assert sorted(errors.__all__) == sorted([*TREE, "Error"])


def make(name: str, text: str) -> errors.Error:
    kind = getattr(errors, name)
    return kind([], text) if name == "BatchError" else kind(text)


@pytest.mark.parametrize("name", errors.__all__)
def test_the_text_of_an_error_is_unchanged(name: str) -> None:
    text = 'no "x"\n  here'
    assert str(make(name, text)) == text
    assert str(getattr(errors, name)()) == ""


@pytest.mark.parametrize("name", errors.__all__)
def test_every_error_survives_pickling(name: str) -> None:
    error = make(name, "what happened")
    error.detail = 17
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is type(error)
    assert str(again) == "what happened"
    assert again.detail == 17


@pytest.mark.skipif(sys.version_info < (3, 11), reason="exceptions have no notes before Python 3.11")
def test_notes_survive_pickling() -> None:
    error = errors.NoResult("nothing")
    error.add_note('node "det"')
    assert pickle.loads(pickle.dumps(error)).__notes__ == ['node "det"']


def test_the_hint_is_the_second_line_unless_the_core_formats_the_error() -> None:
    error = errors.BackendNotFound('backend "X" not found', "pip install x")
    assert (error.headline, error.hint) == ('backend "X" not found', "pip install x")
    assert str(error) == 'backend "X" not found\n  pip install x'
    again = pickle.loads(pickle.dumps(errors.PluginError("headline", "hint", "whole text")))
    assert (again.headline, again.hint, str(again)) == ("headline", "hint", "whole text")


def test_a_config_error_is_its_own_only_problem() -> None:
    error = errors.ConfigError("wrong")
    assert error.problems == [error]
    again = pickle.loads(pickle.dumps(error))
    assert again.problems == [again]


def test_several_problems_become_one_error_that_lists_all() -> None:
    first, second = errors.ConfigError("first"), errors.BackendNotFound("second", "hint")
    assert errors.ConfigError.of([first]) is first
    error = errors.ConfigError.of([first, second])
    assert str(error) == "2 problems in the configuration\n\nfirst\n\nsecond\n  hint"
    assert error.problems == [first, second]
    assert [str(problem) for problem in pickle.loads(pickle.dumps(error)).problems] == ["first", "second\n  hint"]


def test_batch_error_keeps_index_and_exception() -> None:
    error = errors.BatchError([(1, ValueError("x")), (3, errors.NoResult("y"))])
    again = pickle.loads(pickle.dumps(error))
    assert str(again) == "2 requests failed, the first at index 1: ValueError: x"
    assert [(index, type(exception), str(exception)) for index, exception in again.errors] == [
        (1, ValueError, "x"),
        (3, errors.NoResult, "y"),
    ]
    assert str(errors.BatchError([(0, ValueError("x"))])) == "1 request failed at index 0: ValueError: x"


class Meta(type):
    def __getattribute__(cls, name: str) -> Any:
        raise LookupError(name)


class Nameless(Exception, metaclass=Meta):
    def __str__(self) -> str:
        raise LookupError


def test_the_summary_of_a_batch_asks_no_code_of_its_errors() -> None:
    assert str(errors.BatchError([(2, Nameless())])) == "1 request failed at index 2: Nameless"
