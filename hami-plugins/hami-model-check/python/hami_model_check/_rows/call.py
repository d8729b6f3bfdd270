"""Call: an operator with its inputs and attributes, as a rule sees it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hami_model_check._rows.value import Batch, Mixes, Shape, Unknown, Value, normal_axis, shape_of


class Call:
    """An operator in a node.

    Attributes:
        operator: its name without the domain.
        opset: the version of its domain.
        inputs: None: left out.
        outputs: names; empty: left out.
        engine: the engine that runs the model.
    """

    __slots__ = ("attributes", "engine", "inputs", "operator", "opset", "outputs")

    def __init__(
        self,
        operator: str,
        opset: int,
        inputs: Sequence[Value | None],
        attributes: Mapping[str, object],
        outputs: Sequence[str],
        engine: str,
    ) -> None:
        self.operator = operator
        self.opset = opset
        self.inputs = list(inputs)
        self.attributes = attributes
        self.outputs = outputs
        self.engine = engine

    def optional(self, index: int) -> Value | None:
        return self.inputs[index] if index < len(self.inputs) else None

    def input(self, index: int) -> Value:
        value = self.optional(index)
        if value is None:
            raise Unknown(f"lacks its input {index}")
        return value

    def given(self) -> list[Value]:
        return [value for value in self.inputs if value is not None]

    def integer(self, name: str, default: int) -> int:
        value = self.attributes.get(name, default)
        if not isinstance(value, int):
            raise Unknown(f'has an attribute "{name}" that is not an integer')
        return value

    def integers(self, name: str) -> list[int] | None:
        value = self.attributes.get(name)
        if value is None:
            return None
        if not isinstance(value, list) or not all(isinstance(number, int) for number in value):
            raise Unknown(f'has an attribute "{name}" that is not a list of integers')
        return value

    def text(self, name: str, default: str) -> str:
        value = self.attributes.get(name, default)
        if not isinstance(value, str):
            raise Unknown(f'has an attribute "{name}" that is not a string')
        return value

    def axis(self, default: int, rank: int) -> int:
        return normal_axis(self.integer("axis", default), rank)

    def axes(self, index: int, rank: int, *, name: str = "axes") -> list[int] | None:
        """Return axes that are given by input `index` or by an attribute; None: neither is given."""
        if self.optional(index) is not None:
            found = self.input(index).integers()
            if found is None:
                raise Unknown(f"takes its axes from a tensor that is not a constant (input {index})")
        else:
            found = self.integers(name)
        return None if found is None else [normal_axis(axis, rank) for axis in found]

    def no_rows(self, *indices: int) -> None:
        """Raise Unknown if one of these inputs has a batch axis."""
        for index in indices:
            value = self.optional(index)
            if value is not None and value.batch is not None:
                raise Unknown(f"takes its input {index} from the rows, where weights are expected")

    def same_for_all(self) -> bool:
        return all(value.batch is None for value in self.given())


def whole(value: Value, what: str = "input") -> tuple[Shape, Batch | None]:
    """Return shape and batch of a value whose batch axis has the length of the batch."""
    shape = shape_of(value)
    if value.batch is not None and (value.batch.outer != 1 or value.batch.inner != 1):
        raise Unknown(f"has blocks of rows along axis {value.batch.axis} of its {what}")
    return shape, value.batch


def batch_is_first(value: Value, why: str) -> None:
    """Raise Mixes unless the rows are along axis 0."""
    if value.batch is not None and value.batch.axis != 0:
        raise Mixes(f"{why} axis {value.batch.axis}, which is the batch axis")
