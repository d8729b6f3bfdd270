"""Symbolic sizes: sums of products of unknown sizes, so that shape arithmetic on the batch size is understood."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping

_serials = itertools.count()


class Symbol:
    """An unknown integer.

    Attributes:
        batch: whether it depends on the number of rows.
        size: whether it is the length of an axis, which is never negative.
        serial: grows with each symbol.
    """

    __slots__ = ("batch", "name", "serial", "size")

    def __init__(self, name: str, *, batch: bool = False, size: bool = False) -> None:
        self.name = name
        self.batch = batch
        self.size = size
        self.serial = next(_serials)

    def __repr__(self) -> str:
        return self.name


Product = tuple[Symbol, ...]  # sorted by serial; empty: 1
_MAX_TERMS = 8


class Sum:
    """A sum of products of symbols, with integer factors; never a plain integer."""

    __slots__ = ("_hash", "terms")

    def __init__(self, terms: Mapping[Product, int]) -> None:
        self.terms = dict(terms)
        self._hash = hash(frozenset(self.terms.items()))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sum) and self.terms == other.terms

    def __hash__(self) -> int:
        return self._hash

    def __repr__(self) -> str:
        return " + ".join("*".join([str(factor), *map(repr, product)]) for product, factor in self.terms.items())


Size = int | Sum


class TooLarge(Exception):
    """A sum has too many terms to be followed."""


def _serial(symbol: Symbol) -> int:
    return symbol.serial


def of(symbol: Symbol) -> Size:
    return Sum({(symbol,): 1})


def fresh(*, size: bool = True) -> Size:
    """Return an integer that is not known, and is the same for all rows and batch sizes."""
    return of(Symbol("?", size=size))


def depends_on_batch(value: Size) -> bool:
    return isinstance(value, Sum) and any(symbol.batch for product in value.terms for symbol in product)


def newest_symbol(value: Size) -> int:
    """Return the largest serial of its symbols; -1: it has none."""
    if not isinstance(value, Sum):
        return -1
    return max((symbol.serial for product in value.terms for symbol in product), default=-1)


def _terms(value: Size) -> Mapping[Product, int]:
    return value.terms if isinstance(value, Sum) else {(): value} if value else {}


def _simplest(terms: dict[Product, int]) -> Size:
    terms = {product: factor for product, factor in terms.items() if factor}
    if not terms:
        return 0
    if len(terms) == 1 and () in terms:
        return terms[()]
    if len(terms) > _MAX_TERMS:
        raise TooLarge
    return Sum(terms)


def add(a: Size, b: Size) -> Size:
    if isinstance(a, int) and isinstance(b, int):
        return a + b
    terms = dict(_terms(a))
    for product, factor in _terms(b).items():
        terms[product] = terms.get(product, 0) + factor
    return _simplest(terms)


def multiply(a: Size, b: Size) -> Size:
    if isinstance(a, int) and isinstance(b, int):
        return a * b
    terms: dict[Product, int] = {}
    for left, m in _terms(a).items():
        for right, n in _terms(b).items():
            product = tuple(sorted(left + right, key=_serial))
            if len(product) > _MAX_TERMS:
                raise TooLarge
            terms[product] = terms.get(product, 0) + m * n
    return _simplest(terms)


def product_of(sizes: Iterable[Size]) -> Size:
    result: Size = 1
    for value in sizes:
        result = multiply(result, value)
    return result


def divide(a: Size, b: Size) -> Size | None:
    """Return a / b if b is one product that divides a exactly for all values of the symbols; otherwise None."""
    if b == 0:
        return None
    if a == b:
        return 1
    if isinstance(a, int) and isinstance(b, int):
        return a // b if a % b == 0 else None
    divisor = _terms(b)
    if len(divisor) != 1:
        return None
    ((symbols, factor),) = divisor.items()
    terms: dict[Product, int] = {}
    for product, times in _terms(a).items():
        rest = list(product)
        for symbol in symbols:
            if symbol not in rest:
                return None
            rest.remove(symbol)
        if times % factor:
            return None
        terms[tuple(rest)] = times // factor
    return _simplest(terms)


def is_positive(value: Size) -> bool:
    """Return whether the value is never negative; True only if that is certain."""
    return all(factor >= 0 and all(symbol.size for symbol in product) for product, factor in _terms(value).items())


def per_row(value: Size) -> Size | None:
    """Return k if the value is k times the number of rows and k does not depend on it; otherwise None."""
    if not isinstance(value, Sum):
        return None
    rows = {symbol for product in value.terms for symbol in product if symbol.batch}
    if len(rows) != 1:
        return None
    times = divide(value, of(rows.pop()))
    return None if times is None or depends_on_batch(times) else times
