"""Split a batch into groups of requests that a backend processes together, and split their results."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import TYPE_CHECKING, TypeVar

from hami._core import scatter, scattered
from hami._errors import Error

if TYPE_CHECKING:
    from hami._core import Request

__all__ = ["fail_request", "group_requests", "joined_rows", "scatter", "scattered"]

V = TypeVar("V")


def group_requests(
    batch: Iterable[Request],
    read: Callable[[Request], V],
    key: Callable[[V], Hashable] | None = None,
    *,
    max_items: int | None = None,
) -> list[tuple[list[Request], list[V]]]:
    """Read every request of a batch, and group the requests whose values have equal keys.

        def forward(self, batch):
            for requests, arrays in group_requests(batch, read_array, lambda array: (array.shape, array.dtype)):
                scatter(requests, self.model(np.stack(arrays)))

    A request for which `read` or `key` raises an exception fails with it and is in no group; the other requests are
    not affected. Only `MemoryError`, and what does not derive from `Exception`, leaves this function.

    Args:
        batch: the requests that `forward` received.
        read: returns the input of one request; raises an exception if the request is not valid.
        key: returns what the values of one group have in common, for example shape and dtype. None: one key for all.
        max_items: the maximum number of items of a group; a request counts as many items as its `request_size`. More
            requests with one key become several groups. A request with more items is a group of its own.

    Returns:
        The groups in the order of their first requests: the requests of a group and their values, in the order of the
        batch. The list is empty if no request is valid.
    """
    if max_items is not None and max_items < 1:
        raise ValueError(f"max_items must be at least 1, got {max_items}")
    groups: list[tuple[list[Request], list[V]]] = []
    last: dict[Hashable, tuple[list[Request], list[V]]] = {}  # by key
    items: dict[Hashable, int] = {}  # of `last`
    for request in batch:
        try:
            value = read(request)
            own_key = None if key is None else key(value)
            group = last.get(own_key)
        except MemoryError:
            raise
        except Error as error:
            fail_request(request, error)
            continue
        except Exception as error:  # a mistake in the backend: the traceback leads to it
            request.fail(error)
            continue
        if max_items is not None:
            size = request.get("request_size", 1)
            total = items.get(own_key, 0) + size
            if group is not None and total > max_items:
                group, total = None, size
            items[own_key] = total
        if group is None:
            group = last[own_key] = ([], [])
            groups.append(group)
        group[0].append(request)
        group[1].append(value)
    return groups


def fail_request(request: Request, error: Error) -> None:
    """Fail one request with an error, and drop its traceback.

    The frames of a traceback hold their local variables. A caller that keeps the error would otherwise keep the arrays
    and tensors of the whole batch in memory.
    """
    each: BaseException | None = error
    seen: set[int] = set()  # a cycle of causes ends
    while each is not None and id(each) not in seen:
        seen.add(id(each))
        each.__traceback__ = None
        each = each.__context__ if each.__cause__ is None else each.__cause__
    request.fail(error)


def joined_rows(request: Request) -> list[int]:
    """Return the number of rows of each request that a request of CatSplit represents; empty: it represents itself."""
    rows = request.get("tensor_rows", None)
    return list(rows) if isinstance(rows, Sequence) else []
