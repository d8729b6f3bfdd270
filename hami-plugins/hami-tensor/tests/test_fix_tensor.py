"""FixTensor in front of an engine, and the rows of requests on their way through CatTensor and SplitTensor."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import hami
import pytest

np = pytest.importorskip("numpy", reason="numpy is not installed")

Inputs = list[dict[str, Any]]


def takes(dtype: str, *shape: int, name: str = "x", device: str = "cpu", batch_axis: bool = True) -> dict[str, Any]:
    return {"name": name, "dtype": dtype, "shape": list(shape), "device": device, "batch_axis": batch_axis}


announced: list[Any] = [None]  # what the engine that is built next announces
seen: list[Any] = []  # `request_size`, and dtype and shape of each array, of each run


@hami.register("TestEngine")
class Engine(hami.Backend):
    """Doubles the first array of its data."""

    def init(self, options: Any) -> None:
        options["engine_inputs"] = announced[0]

    def forward(self, batch: list[Any]) -> None:
        for item in batch:
            data = item["data"]
            parts = data.values() if hasattr(data, "values") else data if isinstance(data, list) else [data]
            arrays = [hami.to_numpy(part) for part in parts]
            seen.append((item.get("request_size", None), [(array.dtype.name, array.shape) for array in arrays]))
            item["result"] = arrays[0] * 2


@contextmanager
def engine(inputs: Any, backend: str = "S[FixTensor,TestEngine]", **config: Any) -> Iterator[hami.Pipe]:
    announced[0] = inputs
    seen.clear()
    with hami.pipe({"backend": backend, **config}) as pipe:
        yield pipe


ORIGINAL = "IoC[TestEngine; CatSplit[S[FixTensor,CatTensor],S[ContiguousTensor,TestEngine],SplitTensor]]"
BATCHED = {"max": 8, "batching": "greedy"}


@pytest.mark.parametrize("dtype", ["bool", "uint8", "int16", "float16", "float32", "float64"])
def test_data_are_cast_to_the_type_of_the_engine(dtype: str) -> None:
    with engine([takes("float32", -1, 2)]) as pipe:
        result = pipe({"data": np.ones((3, 2), dtype)})["result"]
    assert (result.dtype, result.tolist()) == (np.float32, [[2, 2]] * 3)
    assert seen == [(None, [("float32", (3, 2))])]


@pytest.mark.parametrize(
    ("given", "wanted"), [("int64", "float32"), ("float32", "int32"), ("int32", "uint8"), ("float16", "int8")]
)
def test_casts_that_lose_more_than_precision_are_refused(given: str, wanted: str) -> None:
    with engine([takes(wanted, -1, 2)]) as pipe, pytest.raises(hami.DataTypeError) as raised:
        pipe({"data": np.ones((3, 2), given)})
    assert str(raised.value).split("\n")[0] == (
        f'FixTensor takes {wanted} [-1, 2] for input "x" of the engine, got {given} [3, 2]; a cast from {given} would '
        "lose values"
    )


def test_exact_refuses_rounding_and_its_absence_permits_it() -> None:
    with engine([takes("float32", -1, 2)], "S[FixTensor(exact=true),TestEngine]") as pipe:
        with pytest.raises(hami.DataTypeError, match="would lose values"):
            pipe({"data": np.ones((1, 2))})
        assert pipe({"data": np.ones((1, 2), np.float16)})["result"].dtype == np.float32
    with hami.pipe("FixTensor(dtype=float16,exact=false)") as pipe:
        assert pipe({"data": np.array([0.1, 70000])})["result"].tolist() == [float(np.float16(0.1)), float("inf")]
    with hami.pipe("FixTensor(dtype=float32)") as pipe, pytest.raises(hami.DataTypeError, match="would lose values"):
        pipe({"data": np.ones(1)})


@pytest.mark.parametrize(
    ("given", "order"),
    [((2, 3, 4, 5), (0, 1, 2, 3)), ((2, 4, 5, 3), (0, 3, 1, 2)), ((3, 4, 5), (0, 1, 2)), ((4, 5, 3), (2, 0, 1))],
)
def test_images_are_permuted_and_get_the_batch_axis(given: tuple[int, ...], order: tuple[int, ...]) -> None:
    pixels = np.arange(np.prod(given)).reshape(given).astype(np.uint8)
    with engine([takes("float32", -1, 3, -1, 5)]) as pipe:
        result = pipe({"data": pixels})["result"]
    expected = pixels.transpose(order).astype(np.float32) * 2
    assert np.array_equal(result, expected if len(given) == 4 else expected[None])


def test_an_engine_with_channels_last_gets_them_last() -> None:
    pixels = np.zeros((1, 3, 4, 5), np.float32)
    with engine([takes("float32", -1, 4, 5, 3)]) as pipe:
        assert pipe({"data": pixels})["result"].shape == (1, 4, 5, 3)


@pytest.mark.parametrize(
    ("shape", "shown"), [((1, 3), "[1, 3]"), ((2,), "[2]"), ((1, 1, 3, 2), "[1, 1, 3, 2]"), ((), "[]")]
)
def test_a_tensor_that_cannot_fit_is_refused_with_both_shapes(shape: tuple[int, ...], shown: str) -> None:
    for inputs, wanted in (
        ([takes("float32", -1, 4)], "[-1, 4]"),
        ([takes("float32", 1, 4, batch_axis=False)], "[1, 4]"),
    ):
        with engine(inputs) as pipe, pytest.raises(hami.RequestError) as raised:
            pipe({"data": np.zeros(shape, np.float32)})
        assert str(raised.value).split("\n")[0] == (
            f'FixTensor takes float32 {wanted} for input "x" of the engine, got float32 {shown}'
        )


def test_several_inputs_are_found_by_name_or_in_their_order() -> None:
    inputs = [takes("float32", -1, 2, name="a"), takes("int64", -1, name="b")]
    a, b = np.ones((2, 2), np.uint8), np.ones(2, np.int32)
    shapes = [("float32", (2, 2)), ("int64", (2,))]
    with engine(inputs) as pipe:
        pipe({"data": {"a": a, "b": b}})
        pipe({"data": {"b": b, "a": a}})
        pipe({"data": [a, b]})
        assert seen == [(None, shapes), (None, shapes[::-1]), (None, shapes)]
        for data, given in (
            (a, "a tensor"),
            ([a], "a list of 1 tensor"),
            ({"a": a, "c": b}, "a dict of tensors (a, c)"),
        ):
            with pytest.raises(hami.RequestError) as raised:
                pipe({"data": data})
            assert str(raised.value).split("\n")[0] == f"FixTensor: the engine has the inputs [a, b], got {given}"


def test_parameters_replace_what_the_engine_says() -> None:
    inputs = [takes("float32", -1, 2)]
    with engine(inputs, "S[FixTensor(dtype=int64),TestEngine]") as pipe:
        assert pipe({"data": np.ones((1, 2), np.int8)})["result"].dtype == np.int64
    with engine(inputs, "S[FixTensor(shape='1,3'),TestEngine]") as pipe:
        assert pipe({"data": np.ones((1, 3))})["result"].dtype == np.float32
        with pytest.raises(
            hami.RequestError, match=r'^FixTensor takes float32 \[1, 3\] for input "x" of the engine, got'
        ):
            pipe({"data": np.ones(3)})
    with engine(inputs, "S[FixTensor(shape='3',dtype=float32),TestEngine]") as pipe:
        assert pipe({"data": np.ones(3, np.float32)})["result"].shape == (3,)


def test_an_engine_without_inputs_or_with_an_unknown_shape_is_served() -> None:
    for inputs in (None, []):
        with engine(inputs) as pipe:
            assert pipe({"data": np.ones(3)})["result"].dtype == np.float64
    with engine([{**takes("float32"), "shape": None}]) as pipe:
        assert pipe({"data": np.ones((1, 2, 3), np.uint8)})["result"].dtype == np.float32


@pytest.mark.parametrize(
    ("inputs", "why"),
    [
        ({"x": 1}, "expected list, got dict"),
        ([{"name": "x"}], 'an input has no "dtype"'),
        ([takes("float33", 1)], 'unknown dtype "float33"'),
        ([takes("float32", 1, device="gpu")], ""),
    ],
)
def test_an_announcement_that_cannot_be_read_fails_the_build(inputs: Any, why: str) -> None:
    with pytest.raises(hami.ConfigError) as raised, engine(inputs):
        pass
    first = str(raised.value).split("\n")[0]
    if why:
        assert first.startswith('option "engine_inputs": ')
        assert first.endswith("it must be a list with a dict for each input: name, dtype, shape, device, batch_axis")
    else:
        assert first == '"gpu" is not a device; a device is cpu, cuda:0 or the like'


# Rows of requests


@pytest.mark.parametrize("dtype", ["uint8", "float16", "float64"])
def test_the_original_expression_takes_rows_with_and_without_a_batch_axis(dtype: str) -> None:
    rows = np.arange(8).reshape(4, 2).astype(dtype)
    with engine([takes("float32", -1, 2)], ORIGINAL, **BATCHED) as pipe:
        requests = pipe([{"data": data} for data in (rows, rows[0], rows[:1], rows[:0])])
        assert seen == [(6, [("float32", (6, 2))])]
        again = pipe({**requests[1], "data": rows[:2]})
    doubled = (rows * 2.0).tolist()
    assert [request["result"].tolist() for request in requests] == [doubled, doubled[0], doubled[:1], []]
    assert again["result"].tolist() == doubled[:2]
    assert all(set(request) == {"data", "result"} for request in requests)


def test_request_size_wins_over_the_shape_and_must_agree_with_it() -> None:
    rows = np.zeros((3, 2), np.float32)
    with engine([takes("float32", -1, 2)], ORIGINAL, **BATCHED) as pipe:
        assert pipe({"data": rows, "request_size": 3})["result"].shape == (3, 2)
        with pytest.raises(hami.RequestError) as raised:
            pipe({"data": rows, "request_size": 2})
    assert str(raised.value).split("\n")[0] == (
        "CatTensor: `data` is float32 [3, 2], 3 rows along axis 0, and request_size is 2; they must be equal, or use "
        "stack=true for tensors without a batch axis"
    )


def test_tensors_of_one_request_must_have_the_same_rows() -> None:
    with hami.pipe("CatTensor") as pipe, pytest.raises(hami.RequestError) as raised:
        pipe({"data": {"a": np.zeros((2, 1)), "b": np.zeros((3, 1))}})
    assert str(raised.value).split("\n")[0] == (
        'CatTensor: "b" of `data` is float64 [3, 1], 3 rows along axis 0, and "a" of `data` has 2; they must be equal, '
        "or use stack=true for tensors without a batch axis"
    )


def test_rows_found_from_the_shape_are_used_when_the_batch_is_split() -> None:
    with hami.pipe({"backend": "CatSplit[CatTensor,Identity,SplitTensor]", **BATCHED}) as pipe:
        requests = pipe([{"data": np.full((count, 1), count)} for count in (2, 1, 3)])
    assert [request["result"].tolist() for request in requests] == [[[2]] * 2, [[1]], [[3]] * 3]


def test_the_tensors_of_a_dict_become_keys_of_each_request_that_gets_its_rows():
    with hami.pipe({"backend": "CatSplit[CatTensor,Identity,SplitTensor]", "max": 2}) as pipe:
        first, second = pipe([{"data": {"p": np.zeros((2, 1)), "timeout": np.ones((2, 1))}} for _ in range(2)])
    for request in (first, second):
        assert sorted(request) == ["data", "p", "result"]
        assert hami.to_numpy(request["p"]).tolist() == hami.to_numpy(request["result"]["p"]).tolist() == [[0], [0]]
