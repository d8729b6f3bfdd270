"""guesses: which axes of a model's inputs may be the batch, most likely first."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from hami_model_check._rows import size as sizes
from hami_model_check._rows.model import Axis, Input, Model
from hami_model_check._rows.size import Size
from hami_model_check._rows.value import Batch, Known, Lost, Unknown, Value

_OVERRIDABLE_FROM = 4  # the ir_version from which an initializer that is also an input can be overridden
_MAX_GUESSES = 8
_BATCH_NAME = re.compile(r"n|b|bs|.*batch.*", re.IGNORECASE)

Guess = dict[str, int | None]


def real_inputs(model: Model) -> list[Input]:
    """Return the inputs that a caller must give."""
    return [item for item in model.graph.inputs if item.name not in model.graph.constants]


def guesses(model: Model, named: Mapping[str, int | None]) -> tuple[list[Guess], str]:
    """Return batch axes of the inputs, most likely first, and why the first one that is not among them is impossible.

    Axes that contradict each other or `named` are left out.
    """
    found: list[Guess] = []
    why = ""
    fixed = {item.name: named[item.name] for item in model.graph.inputs if item.name in named}
    for candidate in _candidates(real_inputs(model)):
        guess = {**candidate, **fixed}
        if guess in found:
            continue
        try:
            input_values(model, guess)
        except Unknown as error:
            why = why or str(error)
        else:
            found.append(guess)
    return found[:_MAX_GUESSES], why


def _candidates(inputs: list[Input]) -> Iterator[Guess]:
    names = _axis_names(inputs)
    on_all = [name for name, count in names.items() if count == len(inputs)]
    for name in on_all:
        if _BATCH_NAME.fullmatch(name):
            yield _by_name(inputs, name)
    yield {item.name: None if item.axes == () or not item.is_tensor else 0 for item in inputs}
    yield {item.name: _dynamic(item, 0) for item in inputs}
    by_count = sorted(names, key=lambda name: (not _BATCH_NAME.fullmatch(name), -names[name]))
    for name in by_count:
        yield _by_name(inputs, name)
    for at in (1, 2):
        yield {item.name: _dynamic(item, at) for item in inputs}


def _axis_names(inputs: list[Input]) -> dict[str, int]:
    """Return the names that an input has once, with the number of such inputs."""
    counts: dict[str, int] = {}
    for item in inputs:
        own = [axis.name for axis in item.axes or () if is_name(axis)]
        for name in own:
            if own.count(name) == 1:
                counts[name] = counts.get(name, 0) + 1
    return counts


def _by_name(inputs: list[Input], name: str) -> Guess:
    return {
        item.name: next((at for at, axis in enumerate(item.axes or ()) if is_name(axis) and axis.name == name), None)
        for item in inputs
    }


def _dynamic(item: Input, first: int) -> int | None:
    """Return the first dynamic axis from `first` on."""
    return next((at for at, axis in enumerate(item.axes or ()) if at >= first and axis.length is None), None)


def is_name(axis: Axis) -> bool:
    return axis.length is None and re.search(r"\w", axis.name) is not None


def input_values(model: Model, axes: Mapping[str, int | None]) -> dict[str, Known]:
    """Return the values of the graph inputs.

    Raises:
        Unknown: the inputs cannot have these batch axes.
    """
    inputs = [item for item in model.graph.inputs if item.name in axes or item.name not in model.graph.constants]
    rows = _rows(inputs, axes)
    values: dict[str, Known] = {}
    for item in model.graph.inputs:
        constant = model.graph.constants.get(item.name)
        if constant is not None and item.name not in axes:
            overridable = model.ir_version >= _OVERRIDABLE_FROM
            values[item.name] = _input_value(item, None, rows) if overridable else constant
        else:
            values[item.name] = _input_value(item, axes.get(item.name), rows)
    return values


def _rows(inputs: list[Input], axes: Mapping[str, int | None]) -> Size:
    """Return the number of rows."""
    missing = axes.keys() - {item.name for item in inputs}
    if missing:
        raise Unknown(f'the model has no input "{min(missing)}"')
    chosen = []
    for item in inputs:
        axis = axes.get(item.name)
        if axis is None:
            continue
        if not item.is_tensor or (item.axes is not None and not 0 <= axis < len(item.axes)):
            raise Unknown(f'input "{item.name}" has no axis {axis}')
        chosen.append(Axis(None, "") if item.axes is None else item.axes[axis])
    lengths = {axis.length for axis in chosen}
    if len(lengths) > 1:
        raise Unknown("the batch axes of the inputs have different lengths")
    if not chosen:
        raise Unknown("the model has no input with a batch axis")
    batch_names = {axis.name for axis in chosen if is_name(axis)}
    fixed = chosen[0].length
    rows: Size = fixed if fixed is not None else sizes.of(sizes.Symbol("rows", batch=True, size=True))
    for item in inputs:
        for at, own in enumerate(item.axes or ()):
            if not is_name(own) or axes.get(item.name) == at:
                continue
            words = set(re.findall(r"\w+", own.name))
            if own.name in batch_names or (words & batch_names and len(words) > 1):
                raise Unknown(f'axis {at} of input "{item.name}" has the length "{own.name}" of the batch axis too')
    return rows


def _input_value(item: Input, axis: int | None, rows: Size) -> Known:
    if not item.is_tensor:
        if axis is not None:
            return Lost(False, "", "", 0, f'input "{item.name}" is a list, a map or an optional value')
        return Value(None, is_list=True)
    if item.axes is None:
        return Value(None, None if axis is None else Batch(axis))
    shape = [
        rows if at == axis else sizes.fresh() if own.length is None else own.length for at, own in enumerate(item.axes)
    ]  # engines do not check that axes of one name have one length
    return Value(tuple(shape), None if axis is None else Batch(axis))
