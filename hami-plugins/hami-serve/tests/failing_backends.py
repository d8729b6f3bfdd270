"""Backends that raise what a request, or their configuration, names. `hami serve --import` imports this file."""

from __future__ import annotations

import asyncio
import sys
import threading
from concurrent import futures

import hami
import numpy as np


class OwnBase(BaseException):
    """As gevent.Timeout and GreenletExit: it does not derive from Exception."""


class OwnRejection(hami.RequestError):
    """A backend rejects its request."""


class OwnTextForClients(hami.RequestError):
    for_clients = "é%\x1b" * 20_000


class StrRaises(Exception):
    def __str__(self) -> str:
        raise LookupError("in __str__")


class StrInterrupts(hami.RequestError):
    def __str__(self) -> str:
        raise KeyboardInterrupt


class StrIsNone(Exception):
    def __str__(self) -> str:
        return None  # type: ignore[return-value]


class StrIsHuge(Exception):
    def __str__(self) -> str:
        return "é%" * (5 << 20)


class Hostile(Exception):
    def __getattribute__(self, name: str) -> object:
        raise LookupError(name)


class Frozen(Exception):
    __slots__ = ()

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(name)


class Interrupting(str):
    """Every way to read it raises."""

    def isprintable(self) -> bool:
        raise KeyboardInterrupt

    __iter__ = __getitem__ = split = encode = isprintable  # type: ignore[assignment]


class Notes(list):
    def __iter__(self):
        raise KeyboardInterrupt


class TextsInterrupt(hami.RequestError):
    """What is read of it are objects of the backend."""

    for_clients = Interrupting("not this one")

    def __init__(self) -> None:
        super().__init__(Interrupting("not this one"))
        self.__notes__ = Notes([Interrupting("a note")])


class Untested(Exception):
    """Its truth, its length and whether it equals another one cannot be asked."""

    def __bool__(self) -> bool:
        raise KeyboardInterrupt

    __len__ = __hash__ = __bool__

    def __eq__(self, other: object) -> bool:
        raise KeyboardInterrupt


class Empty(Exception):
    """As an exception that is a list of errors, and has none: it is false."""

    def __len__(self) -> int:
        return 0


class ClassInterrupts(Exception):
    @property
    def __class__(self):
        raise KeyboardInterrupt


class RejectionClassInterrupts(hami.RequestError):
    @property
    def __class__(self):
        raise KeyboardInterrupt


RAISED = {
    "KeyboardInterrupt": KeyboardInterrupt,
    "SystemExit": lambda: SystemExit(3),
    "GeneratorExit": GeneratorExit,
    "OwnBase": OwnBase,
    "StopIteration": lambda: StopIteration("nothing left"),
    "StopAsyncIteration": StopAsyncIteration,
    "futures.CancelledError": futures.CancelledError,
    "asyncio.CancelledError": asyncio.CancelledError,
    "asyncio.TimeoutError": asyncio.TimeoutError,
    "MemoryError": MemoryError,
    "RecursionError": RecursionError,
    "KeyError": lambda: KeyError("no such key"),
    "Without text": Exception,
    "Long": lambda: ValueError("x" * 20_000),
    "Long in another script": lambda: ValueError("測" * 20_000),
    "Controls": lambda: ValueError("one\r\nmodel \"any\" over HTTP: 200 forged\x1b[2J\x00\u2028\x85 two"),
    "Surrogates": lambda: ValueError("half \ud800 of a pair"),
    "StrRaises": StrRaises,
    "StrInterrupts": StrInterrupts,
    "StrIsNone": StrIsNone,
    "StrIsHuge": StrIsHuge,
    "Hostile": Hostile,
    "Frozen": Frozen,
    "Untested": Untested,
    "Empty": Empty,
    "TextsInterrupt": TextsInterrupt,
    "ClassInterrupts": ClassInterrupts,
    "RejectionClassInterrupts": RejectionClassInterrupts,
    "Long name": type("Long\n" * 20_000, (Exception,), {}),
    "OwnRejection": lambda: OwnRejection("not this one"),
    "OwnTextForClients": lambda: OwnTextForClients("not this one"),
}  # fmt: skip


def fail(name: object) -> None:
    """Raise what a name means; do nothing for another one."""
    if name in RAISED:
        raise RAISED[name]()


@hami.register
class FailForward(hami.Backend):
    thread = "dedicated"

    def forward(self, batch):
        for item in batch:
            fail(item["data"])
            item["result"] = item["data"]


@hami.register
class FailInline(FailForward):
    """Runs on the thread of the caller, which is the main thread of the server."""

    thread = "serialized"


@hami.register
class FailByItem(hami.Backend):
    def forward(self, batch):
        for item in batch:
            try:
                fail(item["data"])
            except BaseException as error:
                item.fail(error)
            else:
                item["result"] = item["data"]


@hami.register
class FailFirstPart(hami.Backend):
    def forward(self, batch):
        fail(batch[0]["data"])
        yield "part"


@hami.register
class FailLaterPart(hami.Backend):
    def forward(self, batch):
        yield "part"
        fail(batch[0]["data"])
        yield "last"


@hami.register
class FailEmitted(hami.Backend):
    def forward(self, batch):
        for item in batch:
            item.emit("part")
            fail(item["data"])
            item["result"] = item["data"]


@hami.register
class FailInit(hami.Backend):
    raised: str

    def init(self, options):
        fail(self.raised)

    def forward(self, batch):
        for item in batch:
            item["result"] = item["data"]


@hami.register
class FailWarmup(hami.Backend):
    raised: str

    def forward(self, batch):
        fail(self.raised)
        for item in batch:
            item["result"] = item["data"]


@hami.register
class FailClose(hami.Backend):
    raised: str

    def forward(self, batch):
        for item in batch:
            item["result"] = item["data"]

    def close(self):
        fail(self.raised)


@hami.register
class FailResult(hami.Backend):
    """Returns what has no form in the protocol."""

    def forward(self, batch):
        for item in batch:
            kinds = {
                "object": object(),
                "set": {1},
                "lock": threading.Lock(),
                "complex": [1j],
                "name": {"half \ud800": 1},
                "masked": np.ma.masked_less(np.array([1.5, 2.5]), 2),
                "masked integers": np.ma.masked_less(np.array([1, 2]), 2),
                "nothing masked": np.ma.masked_less(np.array([1.5, 2.5]), 0),
            }
            item["result"] = kinds.get(item["data"], item["data"])


class Converted:
    """Has attributes of a tensor; one of them raises when the server converts it."""

    dtype, shape = "bfloat16", (1,)

    def __init__(self, place: str, raised: str) -> None:
        self.place, self.raised = place, raised
        if place in ("__dlpack__", "cpu", "tolist"):
            self.__dlpack__ = lambda **_: fail(raised)
        if place in ("cpu", "tolist"):
            self.cpu = lambda: fail(raised) if place == "cpu" else self
            self.tolist = lambda: fail(raised)

    def __str__(self) -> str:
        return fail(self.raised)


class Attributes:
    """Has no attribute: it raises something else than AttributeError."""

    def __init__(self, raised: str) -> None:
        self.raised = raised

    def __getattr__(self, name: str) -> object:
        return fail(self.raised)


class ConvertedDict(dict):
    def __iter__(self):
        fail(self["raised"])


def converted(data: str) -> object:
    place, _, raised = data.partition(": ")
    if place == "__str__":
        return np.array([Converted(place, raised)] * 3, object)
    if place == "__str__ of many":
        return np.array([Converted(place, raised)] * 5000, object)
    if place == "__getattr__":
        return Attributes(raised)
    if place == "__iter__":
        return ConvertedDict(raised=raised)
    return Converted(place, raised) if raised else data


@hami.register
class FailConversion(hami.Backend):
    """Returns what raises while the server converts it."""

    def forward(self, batch):
        for item in batch:
            item["result"] = converted(item["data"])


@hami.register
class FailConversionOfPart(hami.Backend):
    def forward(self, batch):
        yield converted(batch[0]["data"])


@hami.register
class FailSysExit(hami.Backend):
    def forward(self, batch):
        if batch[0]["data"] == "exit":
            sys.exit("the model gives up")
        batch[0]["result"] = batch[0]["data"]


@hami.register
class FailWithSecret(hami.Backend):
    """Cannot reach a server whose URL has secrets."""

    url: str

    def init(self, options):
        if "in init" in self.url:
            raise ConnectionError(f"cannot reach {self.url}")

    def forward(self, batch):
        raise ConnectionError(f"cannot reach {self.url!r}")
