"""check_backend: a correct backend passes, and each broken rule is found."""

from __future__ import annotations

import doctest
from typing import Any

import hami
import pytest

from hami_build import testing
from hami_build.testing import check_backend

RULES = (
    "has a docstring",
    "completes the sample",
    "works again after it was closed and built again",
    "does not modify the caller's data",
    "completes every request of a batch",
    "serves many threads",
    "fails only the invalid request of a batch, with a message",
    "continues after a failure",
)


def failures(name: str, *arguments: Any) -> list[str]:
    with pytest.raises(AssertionError) as caught:
        check_backend(name, *arguments)
    return [line.strip() for line in str(caught.value).splitlines() if line.startswith("  FAILED")]


class Add(hami.Backend):
    """Adds `step`."""

    step: int = 1

    def forward(self, batch: list[Any]) -> None:
        for item in batch:
            item["result"] = item["data"] + self.step


def test_a_correct_backend_passes_and_is_reported(capsys: pytest.CaptureFixture[str]) -> None:
    hami.register("CheckedAdd")(Add)
    check_backend("CheckedAdd", {"step": 3}, {"data": 1})
    assert capsys.readouterr().out == "CheckedAdd:\n" + "".join(f"  ok      {rule}\n" for rule in RULES)


def test_the_example_of_the_docstring_runs() -> None:
    failed, attempted = doctest.testmod(testing)
    assert (failed, attempted) == (0, 3)


def test_core_backends_and_containers_pass() -> None:
    check_backend("Identity")
    check_backend("Sequential[Identity,FanOut[Identity]]", {}, {"data": [1, 2]})


def test_an_unknown_backend_fails_every_rule() -> None:
    found = failures("CheckedNowhere")
    assert len(found) == len(RULES)
    assert found[0].startswith(f'FAILED  {RULES[0]}: backend "CheckedNowhere" not found')


def test_a_missing_docstring_is_found() -> None:
    class NoDoc(Add):
        pass

    NoDoc.__doc__ = None
    hami.register("CheckedNoDoc")(NoDoc)
    assert failures("CheckedNoDoc", {}, {"data": 1}) == [f"FAILED  {RULES[0]}: the class has no docstring"]


def test_a_second_construction_that_fails_is_found() -> None:
    class Once(Add):
        """Can be initialised once."""

        made = 0

        def init(self, options: Any) -> None:
            Once.made += 1
            if Once.made == 2:
                raise RuntimeError("made already")

    hami.register("CheckedOnce")(Once)
    assert failures("CheckedOnce", {}, {"data": 1}) == [f"FAILED  {RULES[2]}: made already"]


def test_changed_data_is_found() -> None:
    @hami.register
    class CheckedChanges(hami.Backend):
        """Changes its data."""

        def forward(self, batch: list[Any]) -> None:
            for item in batch:
                item["data"].append(1)
                item["result"] = 0

    assert failures("CheckedChanges", {}, {"data": []}) == [f"FAILED  {RULES[3]}: the caller's `data` was modified"]


def test_a_lost_request_of_a_batch_is_found() -> None:
    @hami.register
    class CheckedLoses(hami.Backend):
        """Sets only the first result."""

        max = 64

        def forward(self, batch: list[Any]) -> None:
            batch[0]["result"] = 0

    found = failures("CheckedLoses", {}, {"data": 1})
    assert any(line.startswith(f"FAILED  {RULES[4]}: ") and "left no `result`" in line for line in found)


def test_an_error_without_text_is_found() -> None:
    @hami.register
    class CheckedMute(hami.Backend):
        """Raises an error without text."""

        def forward(self, batch: list[Any]) -> None:
            for item in batch:
                if not isinstance(item["data"], int):
                    item.fail(ValueError())
                else:
                    item["result"] = 0

    assert failures("CheckedMute", {}, {"data": 1}) == [f"FAILED  {RULES[6]}: its ValueError has no message"]


def test_a_backend_that_does_not_recover_is_found() -> None:
    @hami.register
    class CheckedBreaks(hami.Backend):
        """Does not recover from a bad request."""

        broken = False

        def forward(self, batch: list[Any]) -> None:
            for item in batch:
                self.broken = self.broken or not isinstance(item["data"], int)
                if self.broken:
                    raise TypeError("broken for good")
                item["result"] = 0

    found = failures("CheckedBreaks", {}, {"data": 1})
    assert f"FAILED  {RULES[7]}: broken for good" in found


def test_a_close_that_raises_is_found() -> None:
    class Closes(Add):
        """Cannot be closed."""

        def close(self) -> None:
            raise OSError("stuck")

    hami.register("CheckedCloses")(Closes)
    assert (
        failures("CheckedCloses", {}, {"data": 1})[0]
        == f"FAILED  {RULES[1]}: no caller received this error: OSError: stuck"
    )
