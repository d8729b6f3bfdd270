"""What the checks know about the server, and the ways in which a check ends."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from hami_serve.conformance.client import Answer, Client
from hami_serve.datatypes import DATATYPES


class Failed(Exception):
    """The server does not do what the protocol says."""


class Skipped(Exception):
    """The check does not apply to the server or the model."""


@dataclass(frozen=True)
class Check:
    """A check: its group, its claim, and the function that checks it."""

    group: str
    claim: str
    function: Callable[[Context], None]


CHECKS: list[Check] = []


def check(group: str, claim: str) -> Callable[[Callable[[Context], None]], Callable[[Context], None]]:
    """Register a function as a check."""

    def register(function: Callable[[Context], None]) -> Callable[[Context], None]:
        CHECKS.append(Check(group, claim, function))
        return function

    return register


@dataclass
class Context:
    """The server, the model for the checks, and if there are such: one that returns any tensor, one with parts."""

    client: Client
    model: str
    identity: str | None = None
    stream: str | None = None
    extensions: tuple[str, ...] = ()
    inputs: list[dict[str, Any]] = field(default_factory=list)

    def tensors(self) -> list[dict[str, Any]]:
        """Return inputs of zeros that fit the model; variable sizes are 1."""
        return tensors(self.inputs)

    def needs(self, extension: str) -> None:
        if extension not in self.extensions:
            raise Skipped(f"the server does not list the extension {extension}")

    def infer(self, **changes: Any) -> Answer:
        return self.client.infer(self.model, {"inputs": self.tensors(), **changes})

    def rejects(self, answer: Answer, what: str) -> None:
        """Fail unless the answer is a client error with a message, and the server still works."""
        expect(400 <= answer.status < 500, f"{what}: expected a status 4xx, got {answer.status}: {answer.body[:200]!r}")
        error_text(answer)
        expect(self.client.get("/v2/health/live").status == 200, f"{what}: the server is not live any more")


def tensors(inputs: Sequence[dict[str, Any]], size: int = 1) -> list[dict[str, Any]]:
    """Return zeros for the inputs in the metadata of a model; variable sizes are `size`."""
    if not inputs:
        raise Skipped("the metadata of the model list no inputs")
    return [_zeros(entry, size) for entry in inputs]


def _zeros(entry: dict[str, Any], variable: int) -> dict[str, Any]:
    shape = [variable if size < 0 else size for size in entry["shape"]]
    zero: Any = {"BOOL": False, "BYTES": "0"}.get(entry["datatype"], 0)
    if entry["datatype"] in ("FP16", "BF16"):
        raise Skipped(f"the model has an input of {entry['datatype']}, which JSON tensors do not have")
    return {
        "name": entry["name"],
        "datatype": entry["datatype"],
        "shape": shape,
        "data": [zero] * math.prod(shape),
    }


def expect(condition: object, message: str) -> None:
    if not condition:
        raise Failed(message)


def succeeded(answer: Answer) -> Any:
    expect(answer.status == 200, f"expected status 200, got {answer.status}: {answer.body[:200]!r}")
    try:
        return answer.json
    except ValueError:
        raise Failed(f"the answer is not JSON: {answer.body[:200]!r}") from None


def error_text(answer: Answer) -> str:
    """Return the message of an error, which is an object with the text `error`."""
    try:
        text = answer.json["error"]
    except (ValueError, KeyError, TypeError):
        raise Failed(f'an error is {{"error": text}}, got {answer.body[:200]!r}') from None
    expect(isinstance(text, str) and text, f"the text of an error is empty: {answer.body[:200]!r}")
    return str(text)


def check_outputs(answer: Any) -> list[dict[str, Any]]:
    """Check the outputs of an inference answer with JSON tensors, and return them."""
    outputs = answer.get("outputs")
    expect(isinstance(outputs, list) and outputs, "the answer has no outputs")
    for output in outputs:
        name = output.get("name")
        expect(isinstance(name, str), f"an output has the name {name!r}")
        expect(output.get("datatype") in DATATYPES, f'output "{name}" has the datatype {output.get("datatype")!r}')
        shape = output.get("shape")
        expect(isinstance(shape, list) and all(isinstance(size, int) for size in shape), f"the shape is {shape!r}")
        expect("data" in output, f'output "{name}" has no data')
        count = len(flat(output["data"]))
        expect(count == math.prod(shape), f'output "{name}" of shape {shape} has {count} elements')
    return list(outputs)


def flat(data: Any) -> list[Any]:
    return [leaf for each in data for leaf in flat(each)] if isinstance(data, list) else [data]
