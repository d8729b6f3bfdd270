"""Backends that are planned here and built in another process: their outlines, and thread = "process"."""

from __future__ import annotations

from typing import Annotated

import hami
import pytest


@hami.register
class Outlines(hami.Backend):
    """Sets the outlines of its items as `result`."""

    child_count = (0, None)
    outlines_items = True
    thread = "serialized"

    def forward(self, batch):
        for item in batch:
            item["result"] = self.outlines


@hami.register
class Many(hami.Backend):
    """Has a parameter of each type."""

    wait: hami.types.Duration = 1.5
    space: hami.types.ByteSize = 64 << 20
    names: list[str] | None = None
    ratio: float = 0.1
    text: str = ""
    cache: Annotated[str, hami.types.Key("model::cache")] = "none"
    flag: bool = False

    def forward(self, batch):
        for item in batch:
            item["result"] = [self.wait, self.space, self.names, self.ratio, self.text, self.cache, self.flag]


def outlines_of(backend: str, **keys) -> tuple:
    with hami.pipe({"backend": backend, **keys}) as pipe:
        return pipe({"data": 1})["result"]


@pytest.mark.parametrize(
    ("backend", "keys"),
    [
        ("Many", {}),
        ("Many(wait=5ms,names='a,b',flag=yes)", {}),
        ("Many(text='it\\'s {data}, \"so\"')", {"ratio": 0.30000000000000004}),
        ("Many", {"names": ["with, comma"], "model::cache": "/tmp/x", "space": "3MiB"}),
    ],
)
def test_an_outline_builds_the_same_backend_with_the_same_parameters(backend, keys):
    ((expression, given, classes),) = outlines_of(f"Outlines[{backend}]", **keys)
    assert classes == {"Many": Many}
    with hami.pipe({"backend": backend, **keys}) as here, hami.pipe({"backend": expression, **given}) as there:
        assert there({"data": 0})["result"] == here({"data": 0})["result"]


@pytest.mark.parametrize(
    "backend",
    [
        "IoC[a:=Identity,b:=Add(x=1);S[a,b,(or)Pass]]",
        "S[Identity,Filter[HasKey(k)[Identity],Identity,Skip]]",
        "LoopCondition(count=3)[Identity]",
    ],
)
def test_containers_bound_names_and_conditions_stay_in_an_outline(backend):
    ((expression, _, _),) = outlines_of(f"Outlines[{backend}]")
    ((again, _, _),) = outlines_of(f"Outlines[{expression}]")
    with hami.pipe(backend if "Filter" not in backend else "Identity") as here:
        assert here({"data": 1})["result"] == 1
    assert again.count("[") == expression.count("[") == backend.count("[")


def test_references_are_replaced_in_an_outline():
    ((expression, _, _),) = outlines_of("Outlines[S[Reflect[post],Identity]]", post="Add(size=2)")
    assert expression == "Sequential[Add(size=2),Identity]"


def test_the_items_are_not_built():
    class NeverInitialised(hami.Backend):
        def init(self, options):
            raise AssertionError("it was initialised")

        def forward(self, batch): ...

    hami.register(NeverInitialised)
    assert outlines_of("Outlines[NeverInitialised]")[0][2] == {"NeverInitialised": NeverInitialised}


@pytest.mark.parametrize(
    ("backend", "needed"),
    [
        ("Outlines[S[Identity,Forward[default.0]]]", 'the instance "default.0"'),
        ("IoC[a:=Identity;Outlines[a]]", "a name that an IoC around it binds"),
    ],
)
def test_an_item_that_needs_this_process_is_an_error(backend, needed):
    with pytest.raises(hami.ConfigError, match=f"a backend in another process cannot use {needed}"):
        hami.pipe(backend)


def test_mistakes_in_the_items_are_found_before_anything_is_built():
    with pytest.raises(hami.ConfigError, match='unknown parameter "wiat" for Many'):
        hami.pipe("Outlines[Many(wiat=3)]")


def test_a_class_with_thread_process_runs_in_the_container_process():
    @hami.register
    class Alone(hami.Backend):
        thread = "process"
        step: int = 2

        def forward(self, batch): ...

    hami.register("Process")(Outlines)
    try:
        ((expression, _, classes),) = outlines_of("Alone(step=7)")
        assert (expression, classes) == ("Alone(step=7)", {"Alone": Alone})
        ((expression, _, _),) = outlines_of("Process[S[Alone,Identity]]")
        assert expression == "Sequential[Alone(step=2),Identity]"
    finally:
        hami.generate("Process", "hami-process::Process")
    assert {info.name: info.thread for info in hami.backends().values()}["Alone"] == "process"


def test_a_class_in_a_process_of_its_own_cannot_be_non_blocking():
    class Wrong(hami.Backend):
        thread = "process"
        non_blocking = True

        def forward(self, batch): ...

    with pytest.raises(hami.PluginError, match='the class has "process"'):
        hami.register(Wrong)


def test_a_request_knows_whether_its_caller_takes_parts():
    class Asks(hami.Backend):
        def forward(self, batch):
            batch[0]["result"] = batch[0].takes_parts

    hami.register(Asks)
    with hami.pipe("Asks") as pipe:
        request = {"data": 1}
        assert list(pipe.stream(request)) == []
        assert request["result"] is True
        assert pipe({"data": 1})["result"] is False
