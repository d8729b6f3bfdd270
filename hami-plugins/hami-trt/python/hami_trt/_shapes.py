"""From max, min and opt, numbers or shapes, to the shapes of an optimization profile."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

import hami

Shape = tuple[int, ...]


class Input(NamedTuple):
    """An input of the network; an axis that is free is -1."""

    name: str
    shape: Shape

    def __str__(self) -> str:
        return f'"{self.name}" {"x".join("?" if size < 0 else str(size) for size in self.shape)}'


class Range(NamedTuple):
    """The shapes that one input may have in a profile, and the one that it is tuned for."""

    min: Shape
    opt: Shape
    max: Shape


def ranges_of(
    inputs: Sequence[Input], max: str | None, min: str | None, opt: str | None, owner: str
) -> dict[str, Range]:
    """Return the range of each input by name.

    What is not said: `max` is 1 row, `opt` is `max`, `min` is 1 row of what `max` says. A fixed axis stays as it is.
    """
    largest = _read(inputs, max or "1", "max", owner, {})
    smallest = {
        each.name: tuple(
            1 if axis == 0 and free < 0 else size
            for axis, (free, size) in enumerate(zip(each.shape, largest[each.name], strict=True))
        )
        for each in inputs
    }
    if min:
        smallest = _read(inputs, min, "min", owner, smallest)
    usual = _read(inputs, opt, "opt", owner, largest) if opt else largest
    ranges = {each.name: Range(smallest[each.name], usual[each.name], largest[each.name]) for each in inputs}
    for each in inputs:
        _check_order(each, ranges[each.name], owner)
    return ranges


def _read(
    inputs: Sequence[Input], given: str, parameter: str, owner: str, others: dict[str, Shape]
) -> dict[str, Shape]:
    """Read one parameter: a number of rows for all inputs, or a shape for each, by name or in their order.

    `others` are the shapes that free axes have which a number says nothing of.
    """
    if re.fullmatch(r"[0-9]+", given):
        return _rows(inputs, int(given), parameter, owner, others)
    shapes: dict[str, str] = {}
    texts = given.split(",")
    for position, text in enumerate(texts):
        name, colon, shape = text.rpartition(":")
        if not colon and position < len(inputs):
            name = inputs[position].name
        shapes[name] = shape
    if len(texts) != len(inputs) or set(shapes) != {each.name for each in inputs}:
        raise hami.ConfigError(
            f'{owner}: "{parameter}" is a number of rows, or one shape for each input, '
            f'as "{_example(inputs)}"; the inputs are {_shown(inputs)}, got "{given}"'
        )
    return {each.name: _shape(each, shapes[each.name], parameter, owner) for each in inputs}


def _rows(inputs: Sequence[Input], rows: int, parameter: str, owner: str, others: dict[str, Shape]) -> dict[str, Shape]:
    if rows < 1:
        raise hami.ConfigError(f'{owner}: "{parameter}" is 1 or more, got {rows}')
    batched = [each for each in inputs if each.shape[:1] == (-1,)]
    fixed = {each.shape[0] for each in inputs if each.shape} - {-1}
    if not batched and rows not in (1, *fixed):
        raise hami.ConfigError(
            f'{owner}: "{parameter}" is {rows} rows, but axis 0 of the model is fixed: {_shown(inputs)}; '
            "export the model with a free axis 0"
        )
    shapes = {}
    for each in inputs:
        shape = list(each.shape)
        if each in batched:
            shape[0] = rows
        for axis, size in enumerate(shape):
            if size < 0 and each.name in others:
                shape[axis] = others[each.name][axis]
        if -1 in shape:
            raise hami.ConfigError(
                f"{owner}: input {each} has more free axes than axis 0; "
                f'say whole shapes, as {parameter} = "{_example(inputs)}"'
            )
        shapes[each.name] = tuple(shape)
    return shapes


def _shape(each: Input, text: str, parameter: str, owner: str) -> Shape:
    sizes = re.fullmatch(r"[0-9]+(x[0-9]+)*", text)
    shape = tuple(int(size) for size in text.split("x")) if sizes else ()
    fits = len(shape) == len(each.shape) and all(
        size == wanted or (wanted < 0 and size > 0) for size, wanted in zip(shape, each.shape, strict=True)
    )
    if not fits:
        raise hami.ConfigError(f'{owner}: "{parameter}" of input {each} (? is free) got "{text}"')
    return shape


def _check_order(each: Input, found: Range, owner: str) -> None:
    for low, high, names in ((found.min, found.opt, ("min", "opt")), (found.opt, found.max, ("opt", "max"))):
        if any(a > b for a, b in zip(low, high, strict=True)):
            raise hami.ConfigError(
                f"{owner}: {names[0]} is {text_of(low)} and {names[1]} is {text_of(high)} for input {each}; "
                "min <= opt <= max on every axis"
            )


def text_of(shape: Shape) -> str:
    return "x".join(map(str, shape))


def _example(inputs: Sequence[Input]) -> str:
    """Shapes that would do: 4 rows, and 224 on every other free axis."""
    texts = []
    for each in inputs:
        guesses = (4 if axis == 0 else 224 for axis in range(len(each.shape)))
        shape = text_of(tuple(guess if size < 0 else size for guess, size in zip(guesses, each.shape, strict=True)))
        texts.append(shape if len(inputs) == 1 else f"{each.name}:{shape}")
    return ",".join(texts)


def _shown(inputs: Sequence[Input]) -> str:
    return ", ".join(map(str, inputs))
