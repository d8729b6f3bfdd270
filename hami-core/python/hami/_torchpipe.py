"""The entry points of torchpipe and omniback that HAMi spells differently, as functions over `hami.pipe`."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

from hami import _core
from hami._errors import BatchError, ConfigError, NotFound
from hami._runtime.pipe import Pipe, shared_queues
from hami._runtime.plain_class import named, register_plain
from hami._suggestions import did_you_mean

_queues_lock = threading.Lock()


class Dict(dict[str, Any]):
    """The type of a request in torchpipe: a dict. HAMi takes any dict.

    >>> with hami.pipe("Identity") as pipe:
    ...     pipe(hami.Dict({"data": 1}))["result"]
    1
    """


def init(
    name: str,
    params: Mapping[str, Any] | None = None,
    options: Mapping[str, Any] | None = None,
    register_name: str | None = None,
) -> Pipe:
    """Build a pipe with one node, as `hami.pipe({"backend": name, **params})` does.

    >>> with hami.init("S[Identity,Identity]", {"instance_num": 2}) as pipe:
    ...     pipe({"data": 1})["result"]
    1

    Args:
        name: The expression of the node; or "Interpreter", which builds `options["config"]`, or `params`, as a pipe.
        params: The keys of the node.
        options: Only for "Interpreter".
        register_name: A name under which `hami.get` and `Forward[name]` of other pipes find the pipe.

    Raises:
        ConfigError: The configuration is wrong, or `options` has keys that nothing uses.
        Exception: As for `hami.pipe`.
    """
    given = dict(options or {})
    config: Any = {"backend": name, **(params or {})}
    if name == "Interpreter":
        config = given.pop("config", params or {})
    if given:
        raise ConfigError(
            f'hami.init takes options only as {{"config": …}} of "Interpreter", got {", ".join(map(repr, given))}; '
            "give the keys of the node as params"
        )
    pipe = Pipe(config)
    if register_name is not None:
        register_plain(register_name, _Named(pipe))
        named[register_name] = pipe
    return pipe


def create(name: str, register_name: str | None = None) -> Created:
    """Return an expression whose method `init(params, options)` builds a pipe, as `hami.init` does.

    >>> with hami.create("Identity").init({"instance_num": 2}) as pipe:
    ...     pipe({"data": 1})["result"]
    1

    Args:
        name: As for `hami.init`.
        register_name: As for `hami.init`.
    """
    return Created(name, register_name)


class Created:
    """What `hami.create` returns."""

    def __init__(self, name: str, register_name: str | None) -> None:
        self._name = name
        self._register_name = register_name

    def init(self, params: Mapping[str, Any] | None = None, options: Mapping[str, Any] | None = None) -> Pipe:
        """Build the pipe; see `hami.init`."""
        return init(self._name, params, options, self._register_name)


def get(name: str) -> Any:
    """Return the object that was registered with `hami.register(name, object)`, or the pipe of `hami.init`.

    >>> pipe = hami.init("Identity", register_name="echo")
    >>> hami.get("echo") is pipe
    True
    >>> pipe.close()

    Args:
        name: The name.

    Raises:
        NotFound: No object has this name.
    """
    if name in named:
        return named[name]
    near = did_you_mean(name, named)
    raise NotFound(
        f'no object is registered as "{name}"{near}; register it with hami.register("{name}", object); to call a node '
        "of a pipe, give the request its name under the key node_name"
    )


def default_queue(tag: str = "") -> _core.Queue:
    """Return the queue `tag` of this process, created on first use; pipes that are built later use it under that name.

    >>> queue = hami.default_queue("net_out")
    >>> with hami.pipe("Send(net_out)") as pipe:
    ...     request = pipe({"data": "page"})
    >>> queue.get(timeout=1.0)
    'page'

    Call it before the pipe is built: a pipe has queues of its own for names that this function does not know. A pipe
    with `Recv(tag)` closes the queue when it closes; then the next call returns a new one.

    Args:
        tag: The name of the queue in expressions. Without a tag, it is the queue `default`, to which `Send` without a
            name sends. The queue holds 1024 values.
    """
    name = tag or "default"
    with _queues_lock:
        if name not in shared_queues or shared_queues[name].closed:
            shared_queues[name] = _core.Queue(name=name)
        return shared_queues[name]


class _Named:
    """Passes requests of other pipes to a pipe."""

    def __init__(self, pipe: Pipe) -> None:
        self._pipe = pipe

    def forward(self, ios: list[Any]) -> None:
        requests = [{key: value for key, value in io.items() if key != "event"} for io in ios]
        errors: dict[int, BaseException] = {}
        try:
            self._pipe(requests)
        except BatchError as error:
            errors = dict(error.errors)
        for index, (io, request) in enumerate(zip(ios, requests, strict=True)):
            if index in errors:
                io.fail(errors[index])
            else:
                io.update(request)
