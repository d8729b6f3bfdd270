"""Declarations of Python backend classes, and the errors for invalid ones."""

from __future__ import annotations

import pathlib
import typing
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Optional

import hami
import pytest
from hami._backends.description import describe_class
from hami._backends.registration import make_class

SUPPORTED = (
    'use bool, int, float, str, pathlib.Path, list[str], Literal["a", "b"], hami.types.Duration, hami.types.ByteSize, '
    "hami.types.FilePath, or one of these | None"
)


class Valid(hami.Backend):
    def forward(self, batch: list[Any]) -> None:
        for item in batch:
            item["result"] = item["data"]


def params_of(cls: type) -> dict[str, dict[str, Any]]:
    return {param.pop("name"): param for param in describe_class(cls)["params"]}


def param(kind: str, **given: Any) -> dict[str, Any]:
    default = {"type": kind, "required": "default" not in given, "default": None, "choices": [], "help": ""}
    return {"aliases": [], **default, **given}


def test_annotations_become_parameters() -> None:
    class Every(Valid):
        model: Path
        flag: bool = False
        number: int = 3
        share: float = 0.5
        text: str = "a"
        names: list[str] = []  # noqa: RUF012
        wait: hami.types.Duration = "5ms"
        room: hami.types.ByteSize = "64MiB"
        mode: Literal["fast", "exact"] = "fast"
        level: Literal[1, 2] = 1

    assert params_of(Every) == {
        "model": param("path"),
        "flag": param("bool", default=False),
        "number": param("int", default=3),
        "share": param("float", default=0.5),
        "text": param("str", default="a"),
        "names": param("list", default=[]),
        "wait": param("duration", default="5ms"),
        "room": param("bytesize", default="64MiB"),
        "mode": param("str", default="fast", choices=["fast", "exact"]),
        "level": param("int", default=1, choices=["1", "2"]),
    }


def test_none_is_a_valid_default_of_an_optional_parameter() -> None:
    class Optionals(Valid):
        a: str | None
        b: Optional[int] = None  # noqa: UP045
        c: typing.Union[Path, None] = pathlib.Path("/x")  # noqa: UP007
        d: float | None = 2.0

    assert params_of(Optionals) == {
        "a": param("str", default=None),
        "b": param("int", default=None),
        "c": param("path", default="/x"),
        "d": param("float", default=2.0),
    }


def test_annotated_text_is_the_help() -> None:
    class Helped(Valid):
        size: Annotated[int, "edge length in pixels"] = 224
        post: Annotated[str | None, 7, "what follows"] = None
        wait: Annotated[hami.types.Duration, "for more requests"] | None = None

    assert params_of(Helped) == {
        "size": param("int", default=224, help="edge length in pixels"),
        "post": param("str", default=None, help="what follows"),
        "wait": param("duration", default=None, help="for more requests"),
    }


def test_annotations_without_strings_work_too() -> None:
    evaluated = type("Evaluated", (Valid,), {"__annotations__": {"names": list[str], "x": int}, "x": 1})
    assert params_of(evaluated) == {"names": param("list"), "x": param("int", default=1)}


def test_reserved_private_and_unannotated_attributes_are_not_parameters() -> None:
    class Quiet(Valid):
        max: int = 8
        min: int = 2
        thread: str = "serialized"
        child_count: tuple[int, int] = (1, 1)
        kinds: ClassVar[dict[str, int]] = {}
        spelled: typing.ClassVar[int] = 1
        _session: NotThere | None = None  # noqa: F821
        plain = 3

    assert params_of(Quiet) == {}


@pytest.mark.parametrize("trait", [name for name in hami.Backend.__annotations__ if name != "_services"])
def test_an_annotated_trait_is_not_a_parameter(trait: str) -> None:
    kept = {"__annotations__": {trait: "object"}, trait: getattr(hami.Backend, trait)}
    assert describe_class(type("Kept", (Valid,), kept))["params"] == []


def test_parameters_are_inherited_and_may_be_redeclared() -> None:
    class Base(Valid):
        size: int = 1
        mode: str = "a"

    class Derived(Base):
        extra: bool = True
        mode: Literal["b", "c"] = "b"

    class Defaulted(Base):
        size = 7

    assert list(params_of(Derived)) == ["size", "mode", "extra"]
    assert params_of(Derived)["mode"] == param("str", default="b", choices=["b", "c"])
    assert params_of(Defaulted)["size"] == param("int", default=7)


def test_a_class_description_contains_its_doc_traits_and_brackets() -> None:
    class Container(Valid):
        """Runs its child.

        Twice:

            indented
        """

        thread = "concurrent"
        non_blocking = True
        idempotent = False
        child_count = (1, None)

    described = describe_class(Container)
    assert described.pop("doc") == "Runs its child.\n\nTwice:\n\n    indented"
    assert described == {
        "range": "",
        "params": [],
        "attributes": {},
        "thread": "concurrent",
        "non_blocking": True,
        "idempotent": False,
        "lightweight": False,
        "instances_on_device": 1,
        "by_device": False,
        "outlines_items": False,
        "child_count": (1, None),
    }
    described = describe_class(Valid)
    assert described == {
        "doc": "",
        "range": "",
        "params": [],
        "attributes": {},
        "thread": "dedicated",
        "non_blocking": False,
        "idempotent": True,
        "lightweight": False,
        "instances_on_device": 1,
        "by_device": False,
        "outlines_items": False,
        "child_count": (0, 0),
    }


@pytest.mark.parametrize(
    ("attributes", "text"),
    [
        ({"max": 4}, "1 to 4"),
        ({"min": 2, "max": 4}, "2 to 4"),
        ({"min": 2}, "2 or more"),
        ({"max": lambda self: 4}, "as its instances declare"),
        ({"min": property(lambda self: 4)}, "as its instances declare"),
        ({}, ""),
    ],
)
def test_the_range_is_described_in_words(attributes: dict[str, Any], text: str) -> None:
    assert describe_class(type("Ranged", (Valid,), attributes))["range"] == text


def test_a_class_with_only_forward_with_dep_is_valid() -> None:
    class WithDep(hami.Backend):
        def forward_with_dep(self, batch: list[Any], dep: Any) -> None:
            dep.forward(batch)

    assert describe_class(WithDep)["params"] == []


async def coroutine(self: Any, batch: list[Any]) -> None:
    """A `forward` that is never awaited."""


async def asynchronous_generator(self: Any, batch: list[Any]) -> Any:
    """A `forward` that is never iterated."""
    yield batch


def bad(**members: Any) -> type:
    annotations = members.pop("annotations", {})
    return type("Bad", (Valid,), {**members, "__annotations__": annotations})


@pytest.mark.parametrize(
    ("cls", "message"),
    [
        (3, "a backend must be a subclass of hami.Backend, got 3"),
        (dict, "a backend must be a subclass of hami.Backend, got dict"),
        (hami.Backend, "hami.Backend is the base class; register a subclass of it"),
        (type("Empty", (hami.Backend,), {}), "Empty has no method forward(self, batch)"),
        (
            bad(forward=coroutine),
            'Bad: forward is a coroutine function; it must be a plain function that sets item["result"] of each item '
            "of the batch before it returns, or a generator that yields parts",
        ),
        (
            bad(forward=asynchronous_generator),
            "Bad: forward is an asynchronous generator function; it must be a plain function that sets "
            'item["result"] of each item of the batch before it returns, or a generator that yields parts',
        ),
        (
            bad(__init__=lambda self, width, height, depth=3, *more: None),
            "Bad.__init__ requires width, height, but backends are created without arguments; declare parameters as "
            "annotated attributes, such as  width: int = 1",
        ),
        (bad(thread="gpu"), 'Bad: thread must be "dedicated", "serialized", "concurrent" or "process", got \'gpu\''),
        (bad(non_blocking=1), "Bad: non_blocking must be True or False, got 1"),
        (
            bad(non_blocking=True),
            'Bad: non_blocking = True requires thread = "serialized" or "concurrent"; the class has "dedicated"',
        ),
        (bad(lightweight=1, thread="serialized"), "Bad: lightweight must be True or False, got 1"),
        (
            bad(lightweight=True),
            'Bad: lightweight = True requires thread = "serialized" or "concurrent"; the class has "dedicated"',
        ),
        (
            bad(instances_on_device=2),
            "Bad: instances_on_device must be an int of at least 1, and above 1 only with lightweight = True; got 2",
        ),
        (bad(idempotent=None), "Bad: idempotent must be True or False, got None"),
        (bad(max=0), 'Bad: max must be an int of at least 1, "auto", a property or a method, got 0'),
        (bad(min="2"), "Bad: min must be an int of at least 1, a property or a method, got '2'"),
        (bad(min=4, max=2), "Bad: min = 4 is greater than max = 2"),
        (
            bad(child_count=(2, 1)),
            "Bad: child_count must be the minimum and maximum number of bracket items, such as (1, 1), or (0, None) "
            "for any number, got (2, 1)",
        ),
        (
            bad(child_count=1),
            "Bad: child_count must be the minimum and maximum number of bracket items, such as (1, 1), or (0, None) "
            "for any number, got 1",
        ),
        (
            bad(annotations={"forward": int}),
            "Bad: forward is a method of every backend and cannot be a parameter",
        ),
        (
            bad(annotations={"x": Annotated[int, hami.types.Key("a b")]}),
            'Bad: "a b" is not a valid parameter name: use letters, digits and _, and :: between parts',
        ),
        (bad(annotations={"x": int, "y": Annotated[int, hami.types.Key("x")]}), 'Bad: parameter "x" is declared twice'),
        (bad(annotations={"x": list[int]}), f'Bad: list[int] is not a valid type for parameter "x"; {SUPPORTED}'),
        (bad(annotations={"x": dict}), f'Bad: dict is not a valid type for parameter "x"; {SUPPORTED}'),
        (bad(annotations={"x": int | str}), f'Bad: int | str is not a valid type for parameter "x"; {SUPPORTED}'),
        (
            bad(annotations={"x": Literal["a", 1]}),
            f"Bad: typing.Literal['a', 1] is not a valid type for parameter \"x\"; {SUPPORTED}",
        ),
        (
            bad(annotations={"x": "NotThere"}),
            f'Bad: cannot resolve the type "NotThere" of parameter "x": name \'NotThere\' is not defined; {SUPPORTED}',
        ),
    ],
)
def test_invalid_classes_are_rejected(cls: Any, message: str) -> None:
    with pytest.raises(hami.PluginError) as caught:
        describe_class(cls)
    assert str(caught.value) == message


@pytest.mark.parametrize("name", ["", "1st", "a-b", "a b", "ä", "S[A]"])
def test_a_name_that_is_not_an_identifier_is_rejected(name: str) -> None:
    with pytest.raises(hami.PluginError) as caught:
        make_class(Valid, name, owner="")
    expected = f"{name!r} is not a valid backend name: use letters, digits and _, not starting with a digit"
    assert str(caught.value) == expected


def test_register_returns_the_class_and_lists_it() -> None:
    class TestRegistered(Valid):
        """Does nothing."""

        step: int = 4

    assert hami.register(TestRegistered) is TestRegistered
    info = hami.backends()["TestRegistered"]
    assert (info.name, info.owner, info.doc, info.thread) == ("TestRegistered", "", "Does nothing.", "dedicated")
    assert info.params is not None
    assert [(param["name"], param["type"], param["default"]) for param in info.params] == [("step", "int", 4)]


def test_register_accepts_only_classes() -> None:
    with pytest.raises(
        hami.PluginError, match=r"^a backend must be a subclass of hami.Backend, got <.*Valid object at"
    ):
        hami.register(Valid())  # type: ignore[call-overload]
    with pytest.raises(hami.PluginError) as caught:

        @hami.register()  # type: ignore[call-overload]
        class Called(Valid):
            pass

    expected = (
        'hami.register takes a subclass of hami.Backend, got none; write @hami.register or @hami.register("Name")'
    )
    assert str(caught.value) == expected


def test_register_accepts_another_name_and_replaces_an_existing_one() -> None:
    @hami.register("TestRenamed")
    class First(Valid):
        """First."""

    assert hami.backends()["TestRenamed"].doc == "First."

    @hami.register("TestRenamed")
    class Second(Valid):
        """Second."""

    assert (First.__name__, Second.__name__) == ("First", "Second")
    assert hami.backends()["TestRenamed"].doc == "Second."


def test_a_default_of_the_wrong_type_is_rejected_at_registration() -> None:
    class BadDefault(Valid):
        step: int = "four"  # type: ignore[assignment]

    with pytest.raises(hami.PluginError, match="BadDefault") as caught:
        hami.register(BadDefault)
    assert 'parameter "step"' in str(caught.value)


def test_forward_of_the_base_class_names_the_missing_method() -> None:
    class OnlyDep(hami.Backend):
        def forward_with_dep(self, batch: list[Any], dep: Any) -> None: ...

    with pytest.raises(NotImplementedError) as caught:
        OnlyDep().forward([])
    assert str(caught.value) == "OnlyDep has no forward(self, batch)"
