"""The answer to a request without a protocol: plain JSON, or a picture, bytes or a text as its own content type."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import hami
import numpy as np

from hami_serve.errors import NotAcceptable, short
from hami_serve.failures import of_result
from hami_serve.json_steps import write
from hami_serve.model import Model
from hami_serve.pictures import media_type

JSON = "application/json"
BYTES, TEXT = "application/octet-stream", "text/plain"


class PlainAnswer(NamedTuple):
    """A body and its content type."""

    body: bytes
    kind: str


def render(value: Any, accept: str) -> PlainAnswer:
    """Return the answer of a request with this result.

    Raises:
        NotAcceptable: The client accepts no form that the result has.
        ModelFailed: The result has no form in JSON.
    """
    with of_result():
        single = _single(value)
    offered = [JSON]
    if isinstance(single, bytes):
        offered += [found] if (found := media_type(single[:16])) else []
        offered.append(BYTES)
    elif isinstance(single, str):
        offered.append(TEXT)
    kind = chosen(accept, offered)
    if kind is None:
        raise NotAcceptable(f"the client accepts {short(accept)}, and this answer can be {' or '.join(offered)}")
    if kind == JSON:
        with of_result():
            return PlainAnswer(write(value, _text_of), JSON)
    assert isinstance(single, (bytes, str))
    if isinstance(single, bytes):
        return PlainAnswer(single, kind)
    with of_result():
        return PlainAnswer(single.encode(), f"{TEXT}; charset=utf-8")


def _text_of(value: Any) -> str:
    """Return the text of a value whose class has one, such as that of a time or a path."""
    text_of_class: Any = type(value).__str__
    if text_of_class is object.__str__:
        raise TypeError(f"a result of type {type(value).__name__} has no form in JSON")
    return str(value)


def result_of(model: Model, request: Mapping[str, Any]) -> Any:
    """Return what a model has answered: the outputs that it declares by name, else its result."""
    result = request.get("result")
    if not model.outputs:
        return result
    named = result if isinstance(result, dict) else {}
    found = {}
    for spec in model.outputs:
        if spec.name in named:
            found[spec.name] = named[spec.name]
        elif spec.name in request:
            found[spec.name] = request[spec.name]
        elif len(model.outputs) == 1:
            found[spec.name] = result
        else:
            raise hami.NoResult(f'the model has returned no output "{spec.name}"')
    return found


def _single(value: Any) -> Any:
    """Return the bytes or the text that the answer consists of; any other value as it is."""
    if isinstance(value, dict) and len(value) == 1:
        (value,) = value.values()
    if isinstance(value, np.ndarray) and value.dtype.kind == "O" and value.size == 1:
        value = value.reshape(-1)[0]
    return bytes(value) if isinstance(value, (bytearray, memoryview)) else value


def chosen(accept: str, offered: Sequence[str]) -> str | None:
    """Return the type that a client prefers (RFC 9110, 12.5.1); the first one if it accepts all alike."""
    ranges = [_range(each) for each in accept[:4096].split(",") if each.strip()] or [("*/*", 1.0)]

    def quality(kind: str) -> tuple[float, int]:
        fitting = [(_specific(wanted), share) for wanted, share in ranges if _fits(wanted, kind)]
        specific, share = max(fitting, default=(0, 0.0))
        return share, specific

    best = max(offered, key=quality)
    return best if quality(best)[0] > 0 else None


def _range(text: str) -> tuple[str, float]:
    kind, *options = (each.strip().lower() for each in text.split(";"))
    share = next((each[2:] for each in options if each.startswith("q=")), "1")
    try:
        return kind, min(max(float(share), 0.0), 1.0)
    except ValueError:
        return kind, 0.0


def _specific(wanted: str) -> int:
    return 0 if wanted == "*/*" else 1 if wanted.endswith("/*") else 2


def _fits(wanted: str, kind: str) -> bool:
    return wanted in ("*/*", kind) or (wanted.endswith("/*") and kind.startswith(wanted[:-1]))
