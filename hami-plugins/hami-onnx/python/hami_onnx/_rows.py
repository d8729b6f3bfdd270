"""Rows: the axes of the rows of a batch in the inputs and outputs of a model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import hami
from hami_model_check.joining import Axes, Joining

from hami_onnx._specs import TensorSpec

AxisList = tuple["int | None", ...]


@dataclass(frozen=True)
class Rows:
    """Where the rows of a batch are.

    Attributes:
        joins: whether requests may be joined.
        input_axes, output_axes: in the order of the model; None: all rows share it.
        fixed: the number of rows that the model takes; None: any.
        lone_axes: the axes that data may leave out if it is one row; also of models whose requests are not joined.
        runs_one: whether one row also runs alone, although `fixed` is larger.
    """

    joins: bool
    input_axes: AxisList
    output_axes: AxisList
    fixed: int | None
    lone_axes: AxisList
    runs_one: bool = False

    @cached_property
    def first_lone(self) -> int | None:
        """The first input whose axis data may leave out; None: data has all axes."""
        return next((index for index, axis in enumerate(self.lone_axes) if axis is not None), None)

    @cached_property
    def row_inputs(self) -> tuple[tuple[int, int], ...]:
        """The inputs with rows: index and axis."""
        return tuple((index, axis) for index, axis in enumerate(self.input_axes) if axis is not None)

    @cached_property
    def only_first_axes(self) -> bool:
        """Whether axis 0 is the axis of the rows in all inputs."""
        return all(axis == 0 for axis in self.input_axes)

    @classmethod
    def none(cls, inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec]) -> Rows:
        """Return the rows of a model without a batch axis."""
        nothing = (None,) * len(inputs)
        return cls(False, nothing, (None,) * len(outputs), None, nothing)

    @classmethod
    def of(
        cls, joining: Joining, inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec], batched: bool | None
    ) -> Rows:
        """Return the rows of a model by what is known about it."""
        input_axes = tuple(joining.input_axes.get(spec.name) for spec in inputs)
        output_axes = tuple(joining.output_axes.get(spec.name) for spec in outputs)
        fits = any(axis is not None for axis in input_axes) and all(
            axis is None or not spec.shape or axis < len(spec.shape)
            for spec, axis in zip((*inputs, *outputs), (*input_axes, *output_axes), strict=True)
        )
        sizes = {
            spec.shape[axis] for spec, axis in zip(inputs, input_axes, strict=True) if axis is not None and spec.shape
        }
        fixed = {size for size in sizes if size is not None}
        joins = joining.joins and fits and len(fixed) <= 1 and all(spec.is_tensor for spec in inputs)
        if not joins:
            none = cls.none(inputs, outputs)
            if batched is False or not _has_one_row_axis(inputs, outputs):
                return none
            return cls(False, none.input_axes, (0,) * len(outputs), None, (0,) * len(inputs))
        return cls(True, input_axes, output_axes, fixed.pop() if fixed else None, input_axes)


def candidate_axes(
    inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec], named: Mapping[str, int | None]
) -> list[Axes]:
    """Return the axes along which a test may join requests: those that are named, else what looks like a batch.

    That is axis 0 of the first input with axes, then its other axes whose name an output has. In the other inputs it is
    the axis with the same name or, without names, axis 0 if it has the same size.
    """
    if named:
        return [{spec.name: named.get(spec.name) for spec in inputs}]
    first = next((spec for spec in inputs if spec.shape), None)
    if first is None or not all(spec.is_tensor for spec in inputs):
        return []
    of_outputs = {name for spec in outputs for name in spec.axis_names if name}
    names = list(
        dict.fromkeys(name for name in first.axis_names[1:] if name in of_outputs and name != first.axis_names[0])
    )
    if first.axis_names[0] is not None:
        names.insert(0, first.axis_names[0])
    candidates = [{spec.name: _axis_named(spec, name) for spec in inputs} for name in names]
    if first.axis_names[0] is None:
        size = first.shape[0]
        same = {
            spec.name: 0 if spec.shape and spec.shape[0] == size and spec.axis_names[0] is None else None
            for spec in inputs
        }
        candidates.insert(0, same)
    return candidates


def _axis_named(spec: TensorSpec, name: str) -> int | None:
    same = [axis for axis, other in enumerate(spec.axis_names) if other == name]
    return same[0] if len(same) == 1 else None


def first_axes(inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec]) -> Axes | None:
    """Return axis 0 of all inputs and outputs if all have it, with one size or all dynamic; else None."""
    specs = [*inputs, *outputs]
    sizes = {spec.shape[0] if spec.shape else 0 for spec in specs}
    if not inputs or not all(spec.is_tensor for spec in specs) or len(sizes) != 1 or 0 in sizes:
        return None
    return {spec.name: 0 for spec in specs}


def _has_one_row_axis(inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec]) -> bool:
    """Return whether axis 0 is one row or has one name everywhere, so that data may leave it out."""
    if first_axes(inputs, outputs) is None:
        return False
    names = {spec.axis_names[0] for spec in (*inputs, *outputs)}
    return inputs[0].shape[0] == 1 or (len(names) == 1 and None not in names)


def read_batch_axes(
    given: Sequence[str], inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec], backend: str
) -> Axes:
    """Read the parameter `batch_axes`: entries such as "x=1", or "scale=none" for an input that all rows share."""
    specs = {spec.name: spec for spec in (*inputs, *outputs)}
    axes: Axes = {}
    for entry in given:
        name, equals, text = str(entry).rpartition("=")
        text = text.strip().lower()
        if not equals or name not in specs or not (text == "none" or text.isdecimal()):
            raise hami.ConfigError(
                f'{backend}: "batch_axes" takes entries such as "{next(iter(specs), "x")}=0" or "name=none", where the '
                f"name is one of {', '.join(specs)}; got {entry!r}"
            )
        rank = len(specs[name].shape)
        if text != "none" and rank and int(text) >= rank:
            raise hami.ConfigError(f'{backend}: "batch_axes" names axis {text} of "{name}", which has {rank} axes')
        axes[name] = None if text == "none" else int(text)
    return axes
