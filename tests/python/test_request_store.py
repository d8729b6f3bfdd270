"""hami.types.RequestStore: values by request and key. tests/cpp tests the C++ class, also under ThreadSanitizer."""

from __future__ import annotations

import contextlib
import gc
import random
import threading
import weakref
from typing import Any

import hami
import pytest


@pytest.fixture
def store() -> hami.types.RequestStore:
    """Return a store with one request, r1, that has no values."""
    made = hami.types.RequestStore()
    made.create("r1")
    return made


def test_create_rejects_an_existing_request(store: hami.types.RequestStore) -> None:
    assert store.contains("r1")
    with pytest.raises(hami.AlreadyExists) as caught:
        store.create("r1")
    assert str(caught.value) == 'request "r1" exists already'


def test_insert_never_replaces_a_value(store: hami.types.RequestStore) -> None:
    store.insert("r1", "boxes", [1])
    with pytest.raises(hami.AlreadyExists) as caught:
        store.insert("r1", "boxes", [2])
    assert str(caught.value) == 'request "r1" has a key "boxes" already'
    assert store.get("r1", "boxes") == [1]


def test_insert_or_assign_returns_whether_it_inserted(store: hami.types.RequestStore) -> None:
    assert store.insert_or_assign("r1", "boxes", [1]) is True
    assert store.insert_or_assign("r1", "boxes", [2]) is False
    assert store.get("r1", "boxes") == [2]


def test_get_is_none_if_only_the_key_is_absent(store: hami.types.RequestStore) -> None:
    assert store.get("r1", "boxes") is None


def test_at_and_take_require_the_key(store: hami.types.RequestStore) -> None:
    for read in (store.at, store.take):
        with pytest.raises(hami.NotFound) as caught:
            read("r1", "boxes")
        assert str(caught.value) == 'request "r1" has no key "boxes"'
    store.insert("r1", "boxes", None)
    assert store.at("r1", "boxes") is None
    assert store.take("r1", "boxes") is None
    assert not store.contains("r1", "boxes")


@pytest.mark.parametrize(
    ("function", "arguments"),
    [
        ("insert", ("boxes", 1)),
        ("insert_or_assign", ("boxes", 1)),
        ("get", ("boxes",)),
        ("at", ("boxes",)),
        ("take", ("boxes",)),
        ("erase", ("boxes",)),
        ("keys", ()),
        ("size", ()),
        ("for_each", (print,)),
    ],
)
def test_every_function_raises_not_found_for_an_unknown_request(function: str, arguments: tuple[Any, ...]) -> None:
    with pytest.raises(hami.NotFound) as caught:
        getattr(hami.types.RequestStore(), function)("r9", *arguments)
    assert str(caught.value) == 'the store has no request "r9"'
    assert isinstance(caught.value, KeyError)


def test_erase_and_remove_return_whether_they_removed_something(store: hami.types.RequestStore) -> None:
    store.insert("r1", "boxes", 1)
    assert store.erase("r1", "boxes") is True
    assert store.erase("r1", "boxes") is False
    assert store.remove("r1") is True
    assert store.remove("r1") is False
    assert not store.contains("r1")
    assert not store.contains("r1", "boxes")


def test_size_keys_and_for_each_describe_the_content(store: hami.types.RequestStore) -> None:
    store.create("r2")
    store.insert("r1", "a", 1)
    store.insert("r1", 2, "b")
    assert (store.size(), store.size("r1"), store.size("r2")) == (2, 2, 0)
    assert set(store.keys("r1")) == {"a", 2}
    seen: dict[Any, Any] = {}
    store.for_each("r1", seen.__setitem__)
    assert seen == {"a": 1, 2: "b"}


def test_for_each_sees_a_snapshot_and_may_use_the_store(store: hami.types.RequestStore) -> None:
    for name in ("a", "b"):
        store.insert("r1", name, name)
    seen = []

    def visit(key: str, value: str) -> None:
        seen.append((key, value))
        store.erase("r1", key)
        store.insert_or_assign("r1", "new", 1)

    store.for_each("r1", visit)
    assert sorted(seen) == [("a", "a"), ("b", "b")]
    assert store.keys("r1") == ["new"]


def test_clear_ends_all_requests(store: hami.types.RequestStore) -> None:
    store.clear()
    assert store.size() == 0
    store.create("r1")


def test_ids_and_keys_of_type_int_and_str_are_different(store: hami.types.RequestStore) -> None:
    store.create(7)
    store.create("7")
    store.insert(7, 0, "number")
    store.insert("7", "0", "text")
    assert store.get(7, 0) == "number"
    assert store.get(7, "0") is None
    assert store.get("7", "0") == "text"


@pytest.mark.parametrize("given", [1.5, None, True, b"r1", 1 << 70, "\ud800"])
def test_an_id_is_a_str_or_an_int(store: hami.types.RequestStore, given: Any) -> None:
    with pytest.raises(hami.DataTypeError) as caught:
        store.create(given)
    assert str(caught.value) == f"req_id must be a str of valid Unicode or an int of at most 64 bits, got {given!r}"
    with pytest.raises(hami.DataTypeError) as caught:
        store.insert("r1", given, 1)
    assert str(caught.value) == f"key must be a str of valid Unicode or an int of at most 64 bits, got {given!r}"


def test_values_are_the_same_objects_and_are_freed_with_their_request(store: hami.types.RequestStore) -> None:
    class Page:
        pass

    page = Page()
    gone = weakref.ref(page)
    store.insert("r1", "page", page)
    assert store.get("r1", "page") is page
    del page
    gc.collect()
    assert gone() is not None
    store.remove("r1")
    gc.collect()
    assert gone() is None


def test_a_destructor_of_a_value_may_use_the_store(store: hami.types.RequestStore) -> None:
    gone = []

    class Page:
        def __del__(self) -> None:
            gone.append(store.contains("r1", "page"))

    for end in (
        lambda: store.insert_or_assign("r1", "page", None),
        lambda: store.erase("r1", "page"),
        lambda: store.take("r1", "page"),
        store.clear,
    ):
        store.insert_or_assign("r1", "page", Page())
        end()
        gc.collect()
    assert len(gone) == 4


def test_many_threads_may_use_the_same_requests() -> None:
    store, wrong = hami.types.RequestStore(), []

    def work(seed: int) -> None:
        generator = random.Random(seed)
        actions: list[Any] = [
            lambda r, k: store.create(r),
            lambda r, k: store.insert(r, k, [r]),
            lambda r, k: store.insert_or_assign(r, k, [r]),
            lambda r, k: check(r, store.get(r, k)),
            lambda r, k: check(r, store.take(r, k)),
            lambda r, k: store.for_each(r, lambda _, value: check(r, value)),
            lambda r, k: store.erase(r, k),
            lambda r, k: store.remove(r),
        ]
        for _ in range(1500):
            with contextlib.suppress(hami.NotFound, hami.AlreadyExists):
                generator.choice(actions)(generator.randrange(3), generator.choice("abc"))

    def check(request: int, value: Any) -> None:
        if value not in (None, [request]):
            wrong.append((request, value))

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert store.size() <= 3


def test_repr_shows_the_number_of_requests(store: hami.types.RequestStore) -> None:
    assert repr(store) == "<hami.types.RequestStore: 1 request>"
    assert repr(hami.types.RequestStore()) == "<hami.types.RequestStore: 0 requests>"
