"""Operators that combine elements at the same place, and arithmetic on sizes."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from hami_model_check._rows import size as sizes
from hami_model_check._rows.call import Call
from hami_model_check._rows.size import Sum
from hami_model_check._rows.value import (
    MAX_ELEMENTS,
    Element,
    Mixes,
    Unknown,
    Value,
    broadcast,
)

_Function = Callable[..., Element]


class _Cannot(Exception):
    """The result is not known."""


def elementwise(call: Call) -> list[Value]:
    """Combine elements at the same place after broadcasting."""
    values = call.given()
    if call.opset < 7 and len({value.shape for value in values}) > 1:
        raise Unknown("broadcasts by the rules of opset 6; convert the model to opset 13 or newer")
    result = broadcast(values)
    if any(value.of_size for value in values):
        if result.batch is not None:
            raise Mixes("uses the number of rows as a number")
        elements = _elements(call, values)
        if elements is None:
            raise Unknown("computes with the number of rows")
        result = Value(result.shape, elements=elements)
    elif result.batch is None and all(value.elements is not None for value in values):
        result = Value(result.shape, elements=_elements(call, values))
    return [Value(result.shape, result.batch, result.elements) for _ in call.outputs]


def first_input_only(call: Call) -> list[Value]:
    """Copy the first input, whose type the other one sets."""
    data = call.input(0)
    if data.of_size:
        return [Value(data.shape, elements=data.elements)]
    return [Value(data.shape, data.batch)]


def identity(call: Call) -> list[Value]:
    """Copy the input."""
    return [call.input(0)]


def clip(call: Call) -> list[Value]:
    """Limit elements; the limits are the same for all."""
    call.no_rows(1, 2)
    data = call.input(0)
    return [Value(data.shape, data.batch)]


def bit_cast(call: Call) -> list[Value]:
    """Read elements as another type of the same size."""
    data = call.input(0)
    return [Value(data.shape, data.batch)]


def _elements(call: Call, values: Sequence[Value]) -> list[Element] | None:
    """Compute the elements of a small constant; None: not known."""
    function = _cast(call) if call.operator == "Cast" else _FUNCTIONS.get(call.operator)
    contents = [value.contents() for value in values]
    if function is None or any(part is None for part in contents):
        return None
    lists = [part for part in contents if part is not None]
    count = max((len(part) for part in lists), default=0)
    full = {value.shape for value, part in zip(values, lists, strict=True) if len(part) != 1}
    if len(full) > 1 or count > MAX_ELEMENTS or any(len(part) not in (1, count) for part in lists):
        return None
    try:
        return [_element(function, [part[0 if len(part) == 1 else at] for part in lists]) for at in range(count)]
    except (_Cannot, ArithmeticError, ValueError, TypeError):
        return None


def _element(function: _Function, values: Sequence[Element]) -> Element:
    """Compute an element; if it does not depend on the number of rows, an unknown number is good enough."""
    try:
        return function(*values)
    except (_Cannot, sizes.TooLarge):
        if any(isinstance(value, Sum) and sizes.depends_on_batch(value) for value in values):
            raise _Cannot from None
        return sizes.fresh(size=False)


def _integer(value: Element) -> sizes.Size:
    if isinstance(value, Sum):
        return value
    if isinstance(value, float):
        if not value.is_integer():
            raise _Cannot
        return int(value)
    return value


def _arithmetic(plain: Callable[..., Element], symbolic: Callable[..., sizes.Size]) -> _Function:
    def function(*values: Element) -> Element:
        if any(isinstance(value, Sum) for value in values):
            return symbolic(*map(_integer, values))
        return plain(*values)

    return function


def _divide(a: Element, b: Element) -> Element:
    if isinstance(a, Sum) or isinstance(b, Sum):
        result = sizes.divide(_integer(a), _integer(b))
        if result is None:
            raise _Cannot
        return result
    if isinstance(a, float) or isinstance(b, float):
        return a / b
    quotient = abs(a) // abs(b)
    return quotient if (a < 0) == (b < 0) else -quotient


def _plain(function: Callable[..., Element]) -> _Function:
    def guarded(*values: Element) -> Element:
        if any(isinstance(value, Sum) for value in values):
            raise _Cannot
        return function(*values)

    return guarded


def _compare(function: Callable[[sizes.Size], bool | None], plain: Callable[..., bool]) -> _Function:
    """Compare by the sign of the difference."""

    def compare(a: Element, b: Element) -> Element:
        if not isinstance(a, Sum) and not isinstance(b, Sum):
            return plain(a, b)
        known = function(sizes.add(_integer(a), sizes.multiply(-1, _integer(b))))
        if known is None:
            raise _Cannot
        return known

    return compare


def _is_zero(difference: sizes.Size) -> bool | None:
    if isinstance(difference, int):
        return difference == 0
    constant = difference.terms.get((), 0)
    for sign in (1, -1):  # n + 1 and -n - 1 are never 0
        if sign * constant > 0 and sizes.is_positive(sizes.multiply(sign, difference)):
            return False
    return None


def _is_negative(difference: sizes.Size) -> bool | None:
    if sizes.is_positive(difference):
        return False
    if isinstance(difference, int):
        return True
    opposite = sizes.multiply(-1, difference)
    return True if sizes.is_positive(sizes.add(opposite, -1)) else None


def _not_negative(difference: sizes.Size) -> bool | None:
    known = _is_negative(difference)
    return None if known is None else not known


def _largest(*values: Element) -> Element:
    """Return the largest value. There is at least one row, so that the number of rows is never less than 1."""
    if not any(isinstance(value, Sum) for value in values):
        return max(values)  # type: ignore[type-var]
    different = set(map(_integer, values))
    times = [sizes.per_row(value) for value in different]
    if any(isinstance(number, int) and number >= 1 for number in times):
        different.discard(1)
    if len(different) > 1:
        raise _Cannot
    return different.pop()


def _choose(condition: Element, a: Element, b: Element) -> Element:
    if isinstance(condition, Sum):
        raise _Cannot
    return a if condition else b


def _cast(call: Call) -> _Function | None:
    to = call.integer("to", 0)
    if to in (6, 7):
        return lambda value: value if isinstance(value, Sum) else int(value)
    if to in (1, 11):
        return lambda value: value if isinstance(value, Sum) else float(value)
    return _plain(bool) if to == 9 else None


def _opposite(function: Callable[[sizes.Size], bool | None]) -> Callable[[sizes.Size], bool | None]:
    return lambda difference: function(sizes.multiply(-1, difference))


_FUNCTIONS: dict[str, _Function] = {
    "Add": _arithmetic(lambda a, b: a + b, sizes.add),
    "Sub": _arithmetic(lambda a, b: a - b, lambda a, b: sizes.add(a, sizes.multiply(-1, b))),
    "Mul": _arithmetic(lambda a, b: a * b, sizes.multiply),
    "Div": _divide,
    "Neg": _arithmetic(lambda a: -a, lambda a: sizes.multiply(-1, a)),
    "Min": _plain(min),
    "Max": _largest,
    "Abs": _plain(lambda a: abs(a)),
    "Floor": lambda a: a if isinstance(a, Sum) else float(math.floor(a)),
    "Ceil": lambda a: a if isinstance(a, Sum) else float(math.ceil(a)),
    "Sqrt": _plain(math.sqrt),
    "Not": _plain(lambda a: not a),
    "And": _plain(lambda a, b: bool(a and b)),
    "Or": _plain(lambda a, b: bool(a or b)),
    "Equal": _compare(_is_zero, lambda a, b: a == b),
    "Less": _compare(_is_negative, lambda a, b: a < b),
    "GreaterOrEqual": _compare(_not_negative, lambda a, b: a >= b),
    "Greater": _compare(_opposite(_is_negative), lambda a, b: a > b),
    "LessOrEqual": _compare(_opposite(_not_negative), lambda a, b: a <= b),
    "Where": _choose,
}
