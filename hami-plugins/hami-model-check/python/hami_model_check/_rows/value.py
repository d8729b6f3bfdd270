"""Value: what the proof knows about a tensor, and the outcomes of following the batch axis through an operator."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from hami_model_check._rows import size as sizes
from hami_model_check._rows.size import Size

Element = Size | float
Shape = tuple[Size, ...]
MAX_ELEMENTS = 64  # of a tensor whose contents are followed; shapes have fewer axes


class Batch(NamedTuple):
    """Where the rows are: axis `axis` has the length outer * rows * inner, in this order."""

    axis: int
    outer: Size = 1
    inner: Size = 1


class Value:
    """A tensor in each batch.

    Attributes:
        shape: its axes; None: not known.
        batch: where its rows are. Each of them depends on the same row of the inputs only, and not on the number of
            rows. None: the tensor is the same for all rows and batch sizes, except for what `elements` say.
        elements: its contents in row-major order; None: not known. They may depend on the number of rows.
        is_list: whether it is a sequence, a map or an optional value.
    """

    __slots__ = ("_guessed", "batch", "elements", "is_list", "of_size", "shape")

    def __init__(
        self,
        shape: Shape | None,
        batch: Batch | None = None,
        elements: Sequence[Element] | None = None,
        *,
        is_list: bool = False,
    ) -> None:
        self.shape = shape
        self.batch = batch
        self.elements = tuple(elements) if elements is not None else None
        self.is_list = is_list
        self.of_size = self.elements is not None and any(_of_size(element) for element in self.elements)
        self._guessed: tuple[Element, ...] | None = None

    @property
    def rank(self) -> int | None:
        return None if self.shape is None else len(self.shape)

    def contents(self) -> tuple[Element, ...] | None:
        """Return the elements of a small tensor; elements that are not known are unknown integers."""
        if self.elements is not None:
            return self.elements
        if self._guessed is None and self.batch is None and self.shape is not None and not self.is_list:
            count = sizes.product_of(self.shape)
            if isinstance(count, int) and count <= MAX_ELEMENTS:
                self._guessed = tuple(sizes.fresh(size=False) for _ in range(count))
        return self._guessed

    def integers(self) -> list[int] | None:
        """Return the elements if all of them are known integers."""
        if self.elements is None:
            return None
        found = [element for element in self.elements if isinstance(element, int)]
        return found if len(found) == len(self.elements) else None

    def selected(self, places: Sequence[Sequence[int]], order: Sequence[int] | None = None) -> Value:
        """Return these places of each axis of known elements, then with the axes in another order."""
        assert self.shape is not None
        assert self.elements is not None
        strides = [1] * len(self.shape)
        for axis in range(len(self.shape) - 1, 0, -1):
            length = self.shape[axis]
            assert isinstance(length, int)
            strides[axis - 1] = strides[axis] * length
        offsets = [0]
        shape = []
        for axis in order or range(len(self.shape)):
            offsets = [offset + at * strides[axis] for offset in offsets for at in places[axis]]
            shape.append(len(places[axis]))
        return Value(tuple(shape), elements=[self.elements[offset] for offset in offsets])

    def key(self) -> tuple[object, ...]:
        """Return what equals that of another value about which the same is known."""
        return (self.shape, self.batch, self.elements, self.is_list)

    def __repr__(self) -> str:
        return f"Value({self.shape}, {self.batch}, {self.elements})"


class Lost(NamedTuple):
    """A tensor whose rows are not separate, or not known to be.

    Attributes:
        mixes: whether rows certainly influence each other.
        operator, node, opset, why: of hami_model_check.rows.Reason.
        quantized: whether the cause is a scale that is computed from all rows.
        fails: whether each engine fails on the operator, so that there is no result.
    """

    mixes: bool
    operator: str
    node: str
    opset: int
    why: str
    quantized: bool = False
    fails: bool = False

    def key(self) -> tuple[object, ...]:
        return self


Known = Value | Lost


class Mixes(Exception):
    """Rows influence each other. The text is Reason.why."""

    quantized = False


class MixesByScale(Mixes):
    """All rows share a scale that is computed from them."""

    quantized = True


class Fails(Exception):
    """Each engine fails on the operator. The text is Reason.why."""


class Unknown(Exception):
    """Nothing is known about the result. The text is Reason.why."""


def _of_size(element: Element) -> bool:
    return isinstance(element, sizes.Sum) and sizes.depends_on_batch(element)


def uniform(rank: int | None = None) -> Value:
    """Return a value that is the same for all rows."""
    return Value(None if rank is None else tuple(sizes.fresh() for _ in range(rank)))


def shape_of(value: Value) -> Shape:
    if value.shape is None:
        raise Unknown("has an input whose number of axes is not known")
    return value.shape


def normal_axis(axis: int, rank: int) -> int:
    if not -rank <= axis < rank:
        raise Unknown(f"has the axis {axis} for a tensor of {rank} axes")
    return axis % rank


def rows_of(shape: Shape, batch: Batch | None) -> Value:
    """Return a value whose rows are at `batch`. Raises Unknown if another axis depends on the number of rows."""
    lengths: list[Size] = []
    for axis, length in enumerate(shape):
        if batch is None or axis != batch.axis:
            if sizes.depends_on_batch(length):
                raise Unknown(f"makes the length of axis {axis} depend on the number of rows")
            if not sizes.is_positive(length):  # it may be the -1 or 0 of a shape
                length = sizes.fresh()
        lengths.append(length)
    return Value(tuple(lengths), batch)


def broadcast_sizes(a: Size, b: Size) -> Size:
    if a == b or b == 1:
        return a
    if a == 1:
        return b
    if isinstance(a, int):
        return a
    return b if isinstance(b, int) else sizes.fresh()


def broadcast(values: Sequence[Value]) -> Value:
    """Return the value of an operator that combines elements after broadcasting as NumPy does."""
    if len(values) == 1:
        return Value(values[0].shape, values[0].batch)
    with_rows = [value for value in values if value.batch is not None]
    if any(value.shape is None for value in values):
        others = [value for value in values if value.shape is None or value.shape != ()]
        if not with_rows:
            return uniform()
        if len(others) == 1:  # the others are scalars
            return Value(None, others[0].batch)
        raise Unknown("has an input whose number of axes is not known")
    rank = max(len(shape_of(value)) for value in values)
    batch: Batch | None = None
    for value in with_rows:
        assert value.batch is not None
        shifted = value.batch._replace(axis=value.batch.axis + rank - len(shape_of(value)))
        if batch is None:
            batch = shifted
        elif shifted.axis != batch.axis:
            raise Mixes(
                f"combines axis {batch.axis} of one input with axis {shifted.axis} of another, which are both the "
                "batch: each row meets each other row"
            )
        elif shifted != batch:
            raise Unknown("combines rows with blocks of rows")
    shape: list[Size] = [1] * rank
    for value in values:
        own = shape_of(value)
        first = rank - len(own)
        for axis, length in enumerate(own, first):
            if batch is None or axis != batch.axis:
                shape[axis] = broadcast_sizes(shape[axis], length)
            elif value.batch is not None:
                shape[axis] = length
            elif length != 1:
                raise not_one_row(length, axis)
    return Value(tuple(shape), batch)


def not_one_row(length: Size, axis: int) -> Exception:
    """Return the error for a tensor that is the same for all batches but has an axis at the place of the batch axis."""
    if isinstance(length, int):
        return Unknown(f"combines the batch axis {axis} with a constant of {length} rows")
    return Unknown(f"combines the batch axis {axis} with a tensor of unknown length that has no batch axis")


def join(a: Known, b: Known, wide: set[Size]) -> Known:
    """Return what holds for a tensor that is `a` or `b`. Lengths that differ become symbols, added to `wide`."""
    if isinstance(a, Lost) and a.fails:
        return b
    if isinstance(b, Lost) and b.fails:
        return a
    if isinstance(a, Lost) or isinstance(b, Lost):
        return a if isinstance(a, Lost) and (a.mixes or not isinstance(b, Lost)) else b
    if a is b or a.key() == b.key():
        return a
    if a.batch != b.batch:
        raise Unknown("gives rows in one case, and other rows or none in another")
    if a.of_size or b.of_size:
        raise Unknown("gives different numbers that depend on the number of rows")
    is_list = a.is_list or b.is_list
    if a.shape is None or b.shape is None or len(a.shape) != len(b.shape):
        return Value(None, a.batch, is_list=is_list)
    lengths: list[Size] = []
    for axis, (one, other) in enumerate(zip(a.shape, b.shape, strict=True)):
        if one == other or one in wide:
            lengths.append(one)
            continue
        if a.batch is not None and axis == a.batch.axis:
            raise Unknown("gives different numbers of rows")
        length = sizes.fresh()
        wide.add(length)
        lengths.append(length)
    return Value(tuple(lengths), a.batch, a.elements if a.elements == b.elements else None, is_list=is_list)


def after_loop(value: Known, serial: int) -> Known:
    """Forget the lengths that are symbols of the inside of a loop, which began with this serial number."""
    if isinstance(value, Lost):
        return value
    if value.batch is not None and max(map(sizes.newest_symbol, value.batch[1:])) >= serial:
        raise Unknown("gives blocks of rows of a length that changes")
    elements = value.elements
    if elements is not None and any(not isinstance(n, float) and sizes.newest_symbol(n) >= serial for n in elements):
        if value.of_size:
            raise Unknown("gives numbers that depend on the number of rows")
        elements = None
    shape = value.shape
    if shape is not None:
        shape = tuple(sizes.fresh() if sizes.newest_symbol(length) >= serial else length for length in shape)
    return Value(shape, value.batch, elements, is_list=value.is_list)
