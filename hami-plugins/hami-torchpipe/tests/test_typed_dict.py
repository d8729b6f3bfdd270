"""hami_torchpipe.TypedDict: declared keys and types, checked on every write, and as a request."""

from __future__ import annotations

import copy
import pickle
import sys
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Literal, Optional

import hami
import pytest

import hami_torchpipe


class Detect(hami_torchpipe.TypedDict):
    data: bytes
    boxes: list[int] = []  # noqa: RUF012
    score: float = 0.5
    mode: Literal["fast", "good"] = "fast"
    owner: str | None = None


class Loose(hami_torchpipe.TypedDict, total=False):
    width: int
    shape: tuple[int, ...]


def refused(action: Callable[[], Any]) -> str:
    with pytest.raises(hami.DataTypeError) as caught:
        action()
    return str(caught.value)


def test_a_typed_dict_is_a_dict_with_its_defaults() -> None:
    request = Detect(data=b"jpeg")
    assert isinstance(request, dict)
    assert request == {"data": b"jpeg", "boxes": [], "score": 0.5, "mode": "fast", "owner": None}
    assert Detect({"data": b"", "score": 1}) == Detect([("data", b"")], score=1)


def test_defaults_are_not_shared() -> None:
    first, second = Detect(data=b""), Detect(data=b"")
    first["boxes"].append(1)
    assert second["boxes"] == []


def test_missing_keys_are_reported_together() -> None:
    class Two(hami_torchpipe.TypedDict):
        data: bytes
        names: list[str]

    assert refused(lambda: Detect()) == 'Detect lacks the key "data" (bytes)'
    assert refused(lambda: Two()) == 'Two lacks the keys "data" (bytes), "names" (list[str])'


@pytest.mark.parametrize(
    ("key", "value", "text"),
    [
        ("data", "text", 'key "data" takes bytes, got str'),
        ("boxes", "none", 'key "boxes" takes list[int], got str'),
        ("boxes", [1, 2, "3"], 'key "boxes" takes list[int], got list with str at 2'),
        ("boxes", [True], 'key "boxes" takes list[int], got list with bool at 0'),
        ("score", "high", 'key "score" takes float, got str'),
        ("score", True, 'key "score" takes float, got bool'),
        ("mode", "best", "key \"mode\" takes 'fast' or 'good', got 'best'"),
        ("owner", 3, 'key "owner" takes str | None, got int'),
        ("data", None, 'key "data" takes bytes, got None'),
    ],
)
def test_every_way_of_writing_is_checked(key: str, value: Any, text: str) -> None:
    request = Detect(data=b"")
    before = dict(request)
    assert refused(lambda: request.__setitem__(key, value)) == text
    assert refused(lambda: request.update({"score": 1.0, key: value})) == text
    assert refused(lambda: request.update(score=1.0, **{key: value}) if key != "score" else request.update(score=value))
    assert refused(lambda: request.__ior__({key: value})) == text
    assert refused(lambda: Detect({"data": b"", key: value})) == text
    assert request == before  # a rejected write changes nothing


def test_setdefault_is_checked() -> None:
    loose = Loose()
    assert refused(lambda: loose.setdefault("width", "wide")) == 'key "width" takes int, got str'
    assert loose.setdefault("width", 3) == 3
    assert loose.setdefault("width", 4) == 3


def test_values_of_the_declared_types_are_accepted() -> None:
    request = Detect(data=b"")
    request["score"] = 1  # an int is also a valid float
    request["boxes"] = [1, 2]
    request["mode"] = "good"
    request |= {"owner": "me"}
    assert request == {"data": b"", "boxes": [1, 2], "score": 1, "mode": "good", "owner": "me"}


def test_an_undeclared_key_is_rejected_with_a_suggestion() -> None:
    request = Detect(data=b"")
    assert (
        refused(lambda: request.__setitem__("boxs", []))
        == 'Detect has no key "boxs"; did you mean "boxes"?  (its keys: data, boxes, score, mode, owner)'
    )
    assert refused(lambda: Loose(zzz=1)) == 'Loose has no key "zzz"  (its keys: width, shape)'
    assert refused(lambda: request.update({3: 1})) == "the keys of Detect must be str, got 3"  # type: ignore[dict-item]


def test_extra_items_are_accepted_if_they_are_declared() -> None:
    class Numbers(hami_torchpipe.TypedDict, extra_items=int):
        data: bytes

    request = Numbers(data=b"", width=3)
    assert refused(lambda: request.__setitem__("width", "3")) == 'key "width" takes int, got str'
    request["result"] = "anything"  # a reserved key is not an extra item

    class Anything(hami_torchpipe.TypedDict, extra_items=Any):
        pass

    assert Anything(a=1, b="x") == {"a": 1, "b": "x"}


def test_required_keys_cannot_be_removed() -> None:
    request = Detect(data=b"")
    text = 'key "data" of Detect is required; it cannot be removed'
    for action in (lambda: request.pop("data"), lambda: request.__delitem__("data"), request.clear):
        assert refused(action) == text
    assert request.pop("boxes") == []
    del request["score"]
    assert request.pop("none", 7) == 7
    with pytest.raises(KeyError):
        request.pop("none")
    only = Detect({"data": b""})
    for _ in range(4):
        only.popitem()
    assert refused(only.popitem) == text
    assert only == {"data": b""}


def test_not_required_and_required_mark_single_keys() -> None:
    typing = pytest.importorskip("typing_extensions") if sys.version_info < (3, 11) else __import__("typing")
    keys = {"data": bytes, "label": typing.NotRequired[str]}
    marked = type("Marked", (hami_torchpipe.TypedDict,), {"__annotations__": keys, "__module__": __name__})
    assert marked(data=b"") == {"data": b""}
    assert refused(lambda: marked(data=b"", label=1)) == 'key "label" takes str, got int'
    keys = {"data": typing.Required[bytes], "label": str}
    some = type(hami_torchpipe.TypedDict)("Some", (hami_torchpipe.TypedDict,), {"__annotations__": keys}, total=False)
    assert refused(lambda: some()) == 'Some lacks the key "data" (bytes)'


def test_a_subclass_has_the_keys_of_its_bases() -> None:
    class Base(hami_torchpipe.TypedDict, total=False):
        data: bytes
        limit: ClassVar[int] = 3

    class Derived(Base):
        label: str

    assert Derived(label="cat") == {"label": "cat"}
    assert refused(lambda: Derived()) == 'Derived lacks the key "label" (str)'
    assert refused(lambda: Derived(label="cat", data="")) == 'key "data" takes bytes, got str'
    assert refused(lambda: Derived(label="cat", limit=3)).startswith('Derived has no key "limit"')
    assert Base.limit == 3


@pytest.mark.parametrize(
    ("annotation", "good", "bad", "got"),
    [
        (list, [1, "a"], (1,), "list, got tuple"),
        (tuple[int, str], (1, "a"), (1, 2), "tuple[int, str], got tuple with int at 1"),
        (tuple[int, str], (1, "a"), (1,), "tuple[int, str], got tuple of 1"),
        (tuple[int, ...], (1, 2, 3), (1, "2"), "tuple[int, ...], got tuple with str at 1"),
        (set[int], {1}, {"a"}, "set[int], got set with str"),
        (dict[str, int], {"a": 1}, {"a": "b"}, "dict[str, int], got dict with str under 'a'"),
        (dict[str, int], {}, {3: 1}, "dict[str, int], got dict with int as the key 3"),
        (list[list[int]], [[1], []], [[1], ["a"]], "list[list[int]], got list with list with str at 0 at 1"),
        (Optional[int], None, "a", "int | None, got str"),  # noqa: UP045 (authors may write so)
        (int | list[int], [1], ["a"], "int | list[int], got list with str at 0"),
        (Sequence[int], [1, "not looked into"], 3, "Sequence[int], got int"),
        (Literal[1, 2], 2, True, "1 or 2, got True"),
        (Any, object(), None, None),
        (None, None, 0, "None, got int"),
        (object, 3, None, None),
        (Detect, Detect(data=b""), {"data": b""}, "Detect, got dict"),
    ],
)
def test_each_annotation_accepts_its_values_and_rejects_others(
    annotation: Any, good: Any, bad: Any, got: str | None
) -> None:
    cls = type("One", (hami_torchpipe.TypedDict,), {"__annotations__": {"key": annotation}})
    assert cls(key=good)["key"] is good
    if got:
        assert refused(lambda: cls(key=bad)) == f'key "key" takes {got}'


def test_an_invalid_declaration_is_rejected() -> None:
    def declare(annotation: Any, **members: Any) -> Callable[[], Any]:
        return lambda: type("One", (hami_torchpipe.TypedDict,), {"__annotations__": {"key": annotation}, **members})

    supported = "a class, list[…], tuple[…], set[…], frozenset[…], dict[…, …], Literal[…], X | Y, None or Any"
    assert refused(declare(3)) == f'One: key "key" cannot take 3; use {supported}'
    assert refused(declare(list["Missing"])).startswith('One: key "key" cannot take ')  # type: ignore[name-defined] # noqa: F821
    assert refused(declare(int, key="three")) == 'One: key "key" takes int, but its default is str'
    unresolved = "One: cannot resolve the types of its keys: name 'Missing' is not defined"
    assert refused(declare("Missing")) == f"{unresolved}; use names that its module defines"


def test_a_key_may_be_named_like_a_method() -> None:
    class Order(hami_torchpipe.TypedDict):
        items: list[str] = []  # noqa: RUF012

    assert list(Order(items=["a"]).items()) == [("items", ["a"])]


def test_the_base_class_cannot_be_used_directly() -> None:
    assert (
        refused(lambda: hami_torchpipe.TypedDict(data=1))
        == "hami_torchpipe.TypedDict is a base class; declare a subclass: "
        "class Detect(hami_torchpipe.TypedDict): data: bytes"
    )


def test_copies_are_of_the_same_class() -> None:
    request = Detect(data=b"jpeg", boxes=[1])
    for made in (request.copy(), copy.copy(request), copy.deepcopy(request), pickle.loads(pickle.dumps(request))):
        assert type(made) is Detect
        assert made == request
        assert made is not request
    assert repr(Loose(width=3)) == "Loose({'width': 3})"


class Answer(hami_torchpipe.TypedDict):
    data: int
    result: int


def test_a_typed_dict_is_a_request_and_result_is_not_required() -> None:
    with hami.pipe("Identity") as pipe:
        request = Answer(data=3)
        assert pipe(request) is request
        assert request == {"data": 3, "result": 3}
        several = [Answer(data=1), Answer(data=2)]
        assert [one["result"] for one in pipe(several)] == [1, 2]
        assert pipe.submit(Answer(data=4)).result()["result"] == 4
        event = hami.Event()
        pipe(Answer(data=5, event=event))
        assert event.wait(timeout=60)
        assert event.value() == 5


def test_a_result_of_another_type_fails_its_request() -> None:
    @hami.register
    class SaysYes(hami.Backend):
        def forward(self, batch: list[Any]) -> None:
            for item in batch:
                item["result"] = "yes"

    with hami.pipe("SaysYes") as pipe:
        request = Answer(data=3)
        assert refused(lambda: pipe(request)) == 'key "result" takes int, got str'
        assert request == {"data": 3}
        with pytest.raises(hami.BatchError) as caught:
            pipe([Answer(data=3), {"data": 4}])
        assert [(index, str(error)) for index, error in caught.value.errors] == [(0, 'key "result" takes int, got str')]


def test_a_typed_dict_in_data_stays_the_same_object() -> None:
    with hami.pipe("Identity") as pipe:
        inner = Detect(data=b"")
        assert pipe({"data": inner})["result"] is inner
