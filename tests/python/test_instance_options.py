"""The `options` of an instance: one dict for all its backends, with its number and the event of its node."""

from __future__ import annotations

from typing import Any

import hami
import pytest
from rows import answer


def test_the_event_of_the_options_completes_when_the_node_is_ready_or_has_failed() -> None:
    seen: list[tuple[hami.Event, bool]] = []

    class Waits(hami.Backend):
        def init(self, options: Any) -> None:
            event = options["init_event"]
            seen.append((event, event.done()))

        def forward(self, batch: list[Any]) -> None: ...

    class Fails(Waits):
        def init(self, options: Any) -> None:
            raise ValueError("no model")

    hami.register("Waits")(Waits)
    hami.register("Fails")(Fails)
    with hami.pipe({"backend": "Waits", "instance_num": 2}):
        assert [(type(event), before, event.done()) for event, before in seen] == [(hami.Event, False, True)] * 2
        assert [event.exception() for event, _ in seen] == [None, None]
    seen.clear()
    with pytest.raises(ValueError, match="no model"):
        hami.pipe("S[Fails,Waits]")
    ((event, _),) = seen
    assert isinstance(event.exception(), ValueError)


def test_the_options_contain_the_number_of_the_instance() -> None:
    seen: list[int] = []

    class Numbered(hami.Backend):
        def init(self, options: Any) -> None:
            seen.append(options["instance"])

        def forward(self, batch: list[Any]) -> None: ...

    hami.register("Numbered")(Numbered)
    with hami.pipe({"backend": "Numbered", "instance_num": 3}):
        assert seen == [0, 1, 2]


def test_options_are_shared_by_the_backends_of_an_instance() -> None:
    """An engine builder leaves its engine there, and the inferer takes it."""

    class Builds(hami.Backend):
        def init(self, options: Any) -> None:
            options["engine"] = ["engine"]

        def forward(self, batch: list[Any]) -> None: ...

    class Infers(hami.Backend):
        def init(self, options: Any) -> None:
            self.engine = options["engine"]
            self.engine.append("taken")

        def forward(self, batch: list[Any]) -> None:
            for item in batch:
                item["result"] = list(self.engine)

    hami.register("Builds")(Builds)
    hami.register("Infers")(Infers)
    # Each instance has its own options: neither sees that the other has taken its engine.
    config = {"backend": "IoC[Builds,Infers;Infers]", "instance_num": 2, "entrypoint": "Forward[default.1]"}
    assert answer(config) == ["engine", "taken"]


def test_a_backend_may_keep_its_options() -> None:
    class Keeps(hami.Backend):
        def init(self, options: Any) -> None:
            self.options = options
            options["count"] = options.get("count", 0) + 1

        def forward(self, batch: list[Any]) -> None:
            for item in batch:
                item["result"] = [*item["data"], self.options["count"]]

    kept: list[Any] = []

    class Exposes(Keeps):
        def init(self, options: Any) -> None:
            super().init(options)
            kept.append(options)

    hami.register("TestKeeps")(Keeps)
    hami.register("TestExposes")(Exposes)
    with hami.pipe({"backend": "S[TestKeeps,TestExposes]", "instance_num": 2}) as pipe:
        assert pipe({"data": []})["result"] == [2, 2]
    assert [options["count"] for options in kept] == [2, 2]
    with hami.pipe({"default": {"backend": "Identity"}, "entrypoint": "TestKeeps"}) as pipe:
        assert pipe({"data": []})["result"] == [1]
