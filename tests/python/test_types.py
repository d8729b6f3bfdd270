"""The table of types in the reference: each type has its documented kind, and a pipe returns it unchanged."""

from __future__ import annotations

import collections
import enum
import re
from typing import Any

import hami
import pytest
from doc_blocks import ROOT
from rows import answer

PAGE = ROOT / "hami-core" / "docs" / "reference" / "types.md"
HEADER = ROOT / "hami-core" / "include" / "hami" / "abi.h"
ROWS = re.findall(r"^\| (.*?) ?\| .* \| (\d+) `HAMI_(\w+)` \|$", PAGE.read_text("utf-8"), re.MULTILINE)
KINDS = {python: kind.lower() for python, _, kind in ROWS}


class Level(enum.IntEnum):
    LOW = 1


class Plain:
    pass


def tensor() -> hami.Tensor:
    numpy = pytest.importorskip("numpy", reason="the tensor of this test comes from numpy")
    return answer("SoftmaxTensor", numpy.zeros(3))


def handle() -> hami.types.BackendHandle:
    found: list[hami.types.BackendHandle] = []

    class TestFindsItself(hami.Backend):
        def init(self, options: hami.types.DictView) -> None:
            found.append(self.find("node.default"))

        def forward(self, batch: list[Any]) -> None: ...

    hami.register("TestFindsItself")(TestFindsItself)
    hami.pipe("TestFindsItself").close()
    return found[0]


EXAMPLES: dict[str, Any] = {
    "`None`": [None],
    "`bool`": [True, False],
    "`int` of 64 bits": [0, -1, 2**63 - 1, -(2**63)],
    "`float`": [0.5, float("inf")],
    "`str`": ["", "päge"],
    "`bytes`": [b"", b"x" * 5000],
    "`list`, `tuple`": [[1, "a"], (1, 2), []],
    "`dict`": [{"k": [1]}, {}],
    "`hami.Tensor`": [tensor],
    "`hami.Event`": [hami.Event()],
    "`hami.types.BackendHandle`": [handle],
    "anything else": [
        2**63,
        "\ud800",
        Level.LOW,
        collections.OrderedDict(k=1),
        bytearray(b"x"),
        hami.Queue(),
        Plain(),
        Plain,
    ],
}
CASES = [(python, value) for python, values in EXAMPLES.items() for value in values]


def kind_of(value: Any) -> str:
    """Return the kind of a value in the core: FanOut takes a list, and its error names any other kind."""
    try:
        answer("FanOut[Identity]", value)
    except hami.DataTypeError as error:
        got = str(error).splitlines()[0].removeprefix("FanOut takes a list in `data`, got ")
        return {"None": "none", "Event": "event", "Backend": "backend", "object": "opaque"}.get(got, got)
    return "list"


def test_the_kinds_match_the_header_of_the_plugin_abi() -> None:
    kinds = HEADER.read_text("utf-8").partition("enum hami_kind {")[2].partition("};")[0]
    declared = re.findall(r"^  HAMI_(\w+) = (\d+)", kinds, re.MULTILINE)
    assert [(kind, number) for _, number, kind in ROWS] == declared


def test_every_row_has_examples() -> None:
    assert set(KINDS) == set(EXAMPLES)


@pytest.mark.parametrize(
    ("python", "value"),
    CASES,
    ids=[f"{python}-{value!r}".partition(" at 0x")[0][:40] for python, value in CASES],
)
def test_a_value_has_its_documented_kind_and_is_returned_unchanged(python: str, value: Any) -> None:
    if value in (tensor, handle):
        value = value()
    assert kind_of(value) == KINDS[python]
    result = answer("S[Identity,Identity]", value)
    assert type(result) is type(value)
    assert result is value or (result == value and isinstance(value, (int, float)))
