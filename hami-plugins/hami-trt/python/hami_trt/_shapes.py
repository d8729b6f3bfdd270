"""Converts `max`, `min` and `opt`, which are numbers of rows or shapes, into the shapes of an optimization profile."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

import hami

Shape = tuple[int, ...]


class Input(NamedTuple):
    """An input of the network; -1 is a dynamic axis."""

    name: str
    shape: Shape

    def __str__(self) -> str:
        return f'"{self.name}" {"x".join("?" if size < 0 else str(size) for size in self.shape)}'


class ShapeRange(NamedTuple):
    """The smallest and the largest shape of an input in an optimization profile, and the one it is optimized for."""

    min: Shape
    opt: Shape
    max: Shape

    def contains(self, shape: Sequence[int]) -> bool:
        return len(shape) == len(self.min) and all(
            low <= size <= high for low, size, high in zip(self.min, shape, self.max, strict=True)
        )

    def __str__(self) -> str:
        axes = (str(high) if low == high else f"{low}..{high}" for low, high in zip(self.min, self.max, strict=True))
        return f"[{', '.join(axes)}]"


def profile_shapes(
    inputs: Sequence[Input], max: str | None, min: str | None, opt: str | None, owner: str
) -> dict[str, ShapeRange]:
    """Return the shapes of each input by name.

    The default of `max` is 1 row, the default of `opt` is `max`, the default of `min` is 1 row of the shape in `max`.
    A fixed axis keeps its size.
    """
    largest = _read(inputs, max or "1", "max", owner, {})
    smallest = {
        each.name: tuple(
            1 if axis == 0 and size_in_model < 0 else size
            for axis, (size_in_model, size) in enumerate(zip(each.shape, largest[each.name], strict=True))
        )
        for each in inputs
    }
    if min:
        smallest = _read(inputs, min, "min", owner, smallest)
    optimal = _read(inputs, opt, "opt", owner, largest) if opt else largest
    ranges = {each.name: ShapeRange(smallest[each.name], optimal[each.name], largest[each.name]) for each in inputs}
    for each in inputs:
        _check_order(each, ranges[each.name], owner)
    return ranges


def format_shape(shape: Shape) -> str:
    return "x".join(map(str, shape))


def _read(
    inputs: Sequence[Input], text: str, parameter: str, owner: str, defaults: dict[str, Shape]
) -> dict[str, Shape]:
    """Read one parameter: a number of rows for all inputs, or a shape for each input, by name or in their order.

    A number of rows leaves the other dynamic axes open. They take the sizes in `defaults`.
    """
    if re.fullmatch(r"[0-9]+", text):
        return _shapes_with_rows(inputs, int(text), parameter, owner, defaults)
    shapes: dict[str, str] = {}
    parts = text.split(",")
    for position, part in enumerate(parts):
        name, colon, shape = part.rpartition(":")
        if not colon and position < len(inputs):
            name = inputs[position].name
        shapes[name] = shape
    if len(parts) != len(inputs) or set(shapes) != {each.name for each in inputs}:
        raise hami.ConfigError(
            f'{owner}: "{parameter}" must be a number of rows, or one shape for each input, for example '
            f'"{_example(inputs)}"; the inputs are {_show(inputs)}, got "{text}"'
        )
    return {each.name: _parse_shape(each, shapes[each.name], parameter, owner) for each in inputs}


def _shapes_with_rows(
    inputs: Sequence[Input], rows: int, parameter: str, owner: str, defaults: dict[str, Shape]
) -> dict[str, Shape]:
    if rows < 1:
        raise hami.ConfigError(f'{owner}: "{parameter}" must be 1 or more, got {rows}')
    batched = [each for each in inputs if each.shape[:1] == (-1,)]
    fixed = {each.shape[0] for each in inputs if each.shape} - {-1}
    if not batched and rows not in (1, *fixed):
        raise hami.ConfigError(
            f'{owner}: "{parameter}" is {rows} rows, but axis 0 of the model is fixed: {_show(inputs)}; '
            "export the model with a dynamic axis 0"
        )
    shapes = {}
    for each in inputs:
        shape = list(each.shape)
        if each in batched:
            shape[0] = rows
        for axis, size in enumerate(shape):
            if size < 0 and each.name in defaults:
                shape[axis] = defaults[each.name][axis]
        if -1 in shape:
            raise hami.ConfigError(
                f'{owner}: "{parameter}" is {rows} rows, but input {each} has other dynamic axes; '
                f'give whole shapes, for example {parameter} = "{_example(inputs)}"'
            )
        shapes[each.name] = tuple(shape)
    return shapes


def _parse_shape(each: Input, text: str, parameter: str, owner: str) -> Shape:
    sizes = re.fullmatch(r"[0-9]+(x[0-9]+)*", text)
    shape = tuple(int(size) for size in text.split("x")) if sizes else ()
    matches = len(shape) == len(each.shape) and all(
        size == expected or (expected < 0 and size > 0) for size, expected in zip(shape, each.shape, strict=True)
    )
    if not matches:
        raise hami.ConfigError(f'{owner}: "{parameter}" must match input {each} (? is any size), got "{text}"')
    return shape


def _check_order(each: Input, shapes: ShapeRange, owner: str) -> None:
    for low, high, names in ((shapes.min, shapes.opt, ("min", "opt")), (shapes.opt, shapes.max, ("opt", "max"))):
        if any(a > b for a, b in zip(low, high, strict=True)):
            raise hami.ConfigError(
                f"{owner}: {names[0]} is {format_shape(low)} and {names[1]} is {format_shape(high)} for input {each}; "
                "expected min <= opt <= max on every axis"
            )


def _example(inputs: Sequence[Input]) -> str:
    """Return valid shapes: 4 rows, and 224 on every other dynamic axis."""
    texts = []
    for each in inputs:
        examples = (4 if axis == 0 else 224 for axis in range(len(each.shape)))
        shape = format_shape(
            tuple(example if size < 0 else size for example, size in zip(examples, each.shape, strict=True))
        )
        texts.append(shape if len(inputs) == 1 else f"{each.name}:{shape}")
    return ",".join(texts)


def _show(inputs: Sequence[Input]) -> str:
    return ", ".join(map(str, inputs))
