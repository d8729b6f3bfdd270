"""The entry points of torchpipe and omniback, as functions over `hami.pipe` and `hami.register`."""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import hami
from hami import BatchError, ConfigError, NotFound, Pipe, Queue
from hami.config import parse_toml

_queues: dict[str, Queue] = {}
_queues_lock = threading.Lock()
_named: dict[str, Any] = {}
"""The objects and pipes that are registered, by name."""


def _reset_after_fork() -> None:
    """Forget the queues of the parent's pipes, and the lock, which may be held."""
    global _queues, _queues_lock
    _queues, _queues_lock = {}, threading.Lock()


os.register_at_fork(after_in_child=_reset_after_fork)


def get_include() -> str:
    """Return the folder of `ported_backend.hpp`, which runs C++ backends of torchpipe v0.

    >>> hami_torchpipe.get_include()[-7:]
    'include'
    """
    return str(Path(__file__).with_name("include"))


class Dict(dict[str, Any]):
    """The type of a request in torchpipe: a dict. HAMi takes any dict.

    >>> with hami_torchpipe.pipe("Identity") as pipe:
    ...     pipe(hami_torchpipe.Dict({"data": 1}))["result"]
    1
    """


def register(name: Any, target: Any = None, /) -> Any:
    """Register as `hami.register` does; `get` finds an object by its name.

    >>> class Echo:
    ...     def forward(self, ios):
    ...         for io in ios:
    ...             io["result"] = io["data"]
    >>> echo = hami_torchpipe.register("echo_object", Echo())
    >>> hami_torchpipe.get("echo_object") is echo
    True
    """
    registered = hami.register(name, target)
    if target is not None:
        _named.pop(name, None)
        if not isinstance(target, type):
            _named[name] = target
    return registered


def pipe(config: Any) -> Pipe:
    """Build a pipe as `hami.pipe` does, with the queues of `default_queue`.

    >>> with hami_torchpipe.pipe({"backend": "Identity", "instance_num": "2"}) as pipe:
    ...     pipe({"data": 1})["result"]
    1
    """
    with _queues_lock:
        queues = dict(_queues)
    return hami.pipe(config, queues)


pipe.__dict__["register"] = register


def parse(path: str | Path) -> dict[str, dict[str, Any]]:
    """Read a configuration file, so that the program can change it before it builds a pipe.

    >>> from pathlib import Path
    >>> file = Path("resnet.toml")
    >>> _ = file.write_text('batching_timeout = 4\\n[resnet]\\nbackend = "Identity"\\n')
    >>> hami_torchpipe.parse(file)
    {'resnet': {'backend': 'Identity'}, 'global': {'batching_timeout': 4}}

    Args:
        path: A TOML file.

    Returns:
        The keys of each node, by its name; keys above the first table are those of "global". Values keep their types,
        which torchpipe turns into text: a pipe takes both.

    Raises:
        ConfigError: The file is not valid TOML.
        OSError: The file cannot be read.
    """
    try:
        read = parse_toml(Path(path).read_text("utf-8"))
    except ValueError as error:  # also of the encoding
        raise ConfigError(f"{path} is not valid TOML: {error}") from error
    nodes = {name: keys for name, keys in read.items() if isinstance(keys, dict)}
    rest = {key: value for key, value in read.items() if not isinstance(value, dict)}
    return {**nodes, "global": {**nodes.get("global", {}), **rest}} if rest else nodes


def init(
    name: str,
    params: Mapping[str, Any] | None = None,
    options: Mapping[str, Any] | None = None,
    register_name: str | None = None,
) -> Pipe:
    """Build a pipe with one node, as `hami.pipe({"backend": name, **params})` does.

    >>> with hami_torchpipe.init("S[Identity,Identity]", {"instance_num": 2}) as pipe:
    ...     pipe({"data": 1})["result"]
    1

    Args:
        name: The expression of the node; or "Interpreter", which builds `options["config"]`, or `params`, as a pipe.
        params: The keys of the node.
        options: Only for "Interpreter".
        register_name: A name under which `get` and `Forward[name]` of other pipes find the pipe.

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
            f'init takes options only as {{"config": …}} of "Interpreter", got {", ".join(map(repr, given))}; '
            "give the keys of the node as params"
        )
    built = pipe(config)
    if register_name is not None:
        register(register_name, _Named(built))
        _named[register_name] = built
    return built


def create(name: str, register_name: str | None = None) -> Created:
    """Return an expression whose method `init(params, options)` builds a pipe, as `init` does.

    >>> with hami_torchpipe.create("Identity").init({"instance_num": 2}) as pipe:
    ...     pipe({"data": 1})["result"]
    1

    Args:
        name: As for `init`.
        register_name: As for `init`.
    """
    return Created(name, register_name)


class Created:
    """What `create` returns."""

    def __init__(self, name: str, register_name: str | None) -> None:
        self._name = name
        self._register_name = register_name

    def init(self, params: Mapping[str, Any] | None = None, options: Mapping[str, Any] | None = None) -> Pipe:
        """Build the pipe; see `init`."""
        return init(self._name, params, options, self._register_name)


def get(name: str) -> Any:
    """Return the object that was registered with `hami.register(name, object)`, or the pipe of `init`.

    >>> pipe = hami_torchpipe.init("Identity", register_name="echo")
    >>> hami_torchpipe.get("echo") is pipe
    True
    >>> pipe.close()

    Args:
        name: The name.

    Raises:
        NotFound: No object has this name.
    """
    if name in _named:
        return _named[name]
    near = "".join(f"; did you mean {known}?" for known in get_close_matches(name, _named, 1))
    raise NotFound(
        f'no object is registered as "{name}"{near}; register it with register("{name}", object); to call a node '
        "of a pipe, give the request its name under the key node_name"
    )


def default_queue(tag: str = "") -> Queue:
    """Return the queue `tag` of this process, created on first use; `pipe` and `init` give it to what they build later.

    >>> queue = hami_torchpipe.default_queue("net_out")
    >>> with hami_torchpipe.pipe("Send(net_out)") as pipe:
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
        if name not in _queues or _queues[name].closed:
            _queues[name] = Queue(name=name)
        return _queues[name]


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
