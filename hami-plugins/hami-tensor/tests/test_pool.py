"""PoolTensor and L2Normalize: the vectors of tokens become one, with any padding and any neighbours in the batch."""

from __future__ import annotations

import re
from typing import Any

import hami
import pytest

np = pytest.importorskip("numpy", reason="numpy is not installed")

POOLED = {
    "cls": lambda vectors: vectors[0],
    "lasttoken": lambda vectors: vectors[-1],
    "max": lambda vectors: vectors.max(0),
    "mean": lambda vectors: vectors.mean(0),
    "mean_sqrt_len_tokens": lambda vectors: vectors.sum(0) / len(vectors) ** 0.5,
    "weightedmean": lambda vectors: np.average(vectors, 0, np.arange(1, len(vectors) + 1)),
}
SIZE = 5


def run(source: str, data: Any, **keys: Any) -> Any:
    with hami.pipe(source) as pipe:
        return hami.to_numpy(pipe({"data": data, **keys})["result"])


def vectors_of(tokens: int, dtype: Any = np.float32) -> Any:
    return (100 + np.random.default_rng(tokens).standard_normal((1, tokens, SIZE))).astype(dtype)


@pytest.mark.parametrize("mode", POOLED)
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_each_pooling_is_computed_in_float64_and_rounded_once(mode, dtype):
    """The sum of 2048 numbers of about 100 is out of the range of float16."""
    vectors = vectors_of(2048, dtype)
    found = run(f"PoolTensor(pooling={mode})", vectors)
    assert (found.dtype, found.shape) == (np.float32, (SIZE,))
    np.testing.assert_allclose(found, POOLED[mode](vectors[0].astype(np.float64)), rtol=1e-7)


@pytest.mark.parametrize("mode", POOLED)
def test_padding_and_its_side_change_no_bit(mode):
    vectors = vectors_of(7)
    alone = run(f"PoolTensor(pooling={mode})", vectors)
    for before, after in ((0, 9), (9, 0), (3, 1)):
        padded = np.pad(vectors, ((0, 0), (before, after), (0, 0)), constant_values=np.nan)
        mask = np.pad(np.ones((1, 7), np.int64), ((0, 0), (before, after)))
        for given in (mask, mask[0].astype(bool)):
            found = run(f"PoolTensor(pooling={mode})", padded, attention_mask=given)
            np.testing.assert_array_equal(found, alone)


def test_neighbours_and_strides_change_no_bit():
    texts = [vectors_of(tokens) for tokens in (1, 3, 64, 200)]
    with hami.pipe({"backend": "PoolTensor(pooling=mean,normalize=true)", "max": 8, "batching": "greedy"}) as pipe:
        alone = [hami.to_numpy(pipe({"data": text})["result"]) for text in texts]
        together = pipe([{"data": text} for text in texts])
        strided = pipe([{"data": np.asfortranarray(text)} for text in texts])
    for wanted, *others in zip(alone, together, strided, strict=True):
        for found in others:
            np.testing.assert_array_equal(hami.to_numpy(found["result"]), wanted)


def test_several_poolings_are_joined_in_their_order():
    vectors = vectors_of(3)
    found = run("PoolTensor(pooling='cls,mean')", vectors)
    np.testing.assert_allclose(found, np.concatenate([vectors[0, 0], vectors[0].mean(0)]), rtol=1e-6)


def test_numbers_that_are_not_numbers_stay_where_they_are():
    vectors = vectors_of(3)
    vectors[0, 1, 2] = np.nan
    for mode in ("mean", "max"):
        found = run(f"PoolTensor(pooling={mode})", vectors)
        assert np.isnan(found).tolist() == [False, False, True, False, False]


def test_a_vector_of_zeros_stays_and_others_get_the_length_1():
    assert run("PoolTensor(pooling=mean,normalize=true)", np.zeros((1, 4, SIZE), np.float32)).tolist() == [0] * SIZE
    found = run("PoolTensor(pooling=mean,normalize=true)", vectors_of(4), dimensions=2)
    assert found.shape == (2,)
    assert np.linalg.norm(found.astype(np.float64)) == pytest.approx(1)


def test_keys_of_the_request():
    vectors, mean = vectors_of(4), vectors_of(4)[0].mean(0)
    unit = mean / np.linalg.norm(mean)
    np.testing.assert_allclose(run("PoolTensor(pooling=mean)", vectors, normalize=True), unit, rtol=1e-6)
    np.testing.assert_allclose(
        run("PoolTensor(pooling=mean,normalize=true)", vectors, normalize=False), mean, rtol=1e-6
    )
    source = "PoolTensor(pooling=mean,include_prompt=false)"
    np.testing.assert_allclose(run(source, vectors, prompt_tokens=3), vectors[0, 3], rtol=1e-6)
    np.testing.assert_allclose(run("PoolTensor(pooling=mean)", vectors, prompt_tokens=3), mean, rtol=1e-6)


def test_an_output_that_is_pooled_is_taken_as_it_is():
    vector = np.float32([[3, 4]])
    outputs = {"last_hidden_state": vectors_of(2), "sentence_embedding": vector}
    assert run("PoolTensor(pooling=cls,normalize=true)", outputs).tolist() == [3, 4]
    assert run("PoolTensor(normalize_pooled=true)", vector).tolist() == pytest.approx([0.6, 0.8])
    assert run("PoolTensor", outputs, dimensions=1).tolist() == [1]
    with pytest.raises(hami.NoResult):
        run("PoolTensor", vectors_of(2))


def test_a_key_that_is_none_changes_nothing():
    keys = dict.fromkeys(("dimensions", "normalize", "prompt_tokens"))
    source = "PoolTensor(pooling=mean,include_prompt=false)"
    np.testing.assert_array_equal(run(source, vectors_of(3), **keys), run(source, vectors_of(3)))


@pytest.mark.parametrize(
    ("data", "keys", "message"),
    [
        (None, {}, "PoolTensor takes a tensor"),
        (np.zeros((2, 3, SIZE)), {}, "floating-point numbers [1, tokens, size] or [1, size], got float64 [2, 3, 5]"),
        (np.zeros((1, 3, SIZE), int), {}, "got int64 [1, 3, 5]"),
        ({"a": np.zeros(1), "b": np.zeros(1)}, {}, "got a dict of tensors (a, b)"),
        (np.zeros((1, 0, SIZE)), {}, "the text has no tokens to pool"),
        (np.zeros((1, 3, SIZE)), {"prompt_tokens": 3}, "the text has no tokens to pool"),
        (np.zeros((1, 3, SIZE)), {"attention_mask": np.zeros((1, 3), int)}, "the text has no tokens to pool"),
        (
            np.zeros((1, 3, SIZE)),
            {"attention_mask": np.ones((1, 2), int)},
            "the text has 3 tokens, and attention_mask is int64 [1, 2]; it must be integers [3] or [1, 3]",
        ),
        (np.zeros((1, 3, SIZE)), {"attention_mask": np.ones(3)}, "attention_mask is float64 [3]"),
        (np.zeros((1, 3, SIZE)), {"attention_mask": np.ones(3, np.complex64)}, "attention_mask is complex64 [3]"),
        (np.zeros((1, 3, SIZE)), {"dimensions": 0}, '"dimensions" must be from 1 to 5, got 0'),
        (np.zeros((1, 3, SIZE)), {"dimensions": 6}, '"dimensions" must be from 1 to 5, got 6'),
        (np.zeros((1, 3, SIZE)), {"dimensions": "2"}, '"dimensions" must be from 1 to 5, got another type'),
        (np.zeros((1, 3, SIZE)), {"normalize": "yes"}, "expected bool, got str"),
    ],
)
def test_a_wrong_request_fails_alone_and_is_named_by_its_index(data, keys, message):
    requests = [{"data": vectors_of(2)}, {"data": data, **keys}, {"data": vectors_of(3)}]
    source = {"backend": "PoolTensor(pooling=mean,include_prompt=false)", "max": 3, "batching": "greedy"}
    with hami.pipe(source) as pipe, pytest.raises(hami.BatchError, match=re.escape(message)) as raised:
        pipe(requests)
    ((index, error),) = raised.value.errors
    assert (index, isinstance(error, (hami.RequestError, hami.DataTypeError))) == (1, True)
    assert ["result" in request for request in requests] == [True, False, True]


def test_an_unknown_pooling_is_an_error_when_the_pipe_is_built():
    with pytest.raises(hami.ConfigError, match='PoolTensor: unknown pooling "median"'):
        hami.pipe("PoolTensor(pooling=median)")


# ---- L2Normalize ----


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_vectors_get_the_length_1(dtype, axis):
    array = np.array([[3, 4, 0], [-5, 12, 0]], dtype)
    found = run(f"L2Normalize(axis={axis})", array)
    lengths = np.linalg.norm(array.astype(np.float64), axis=axis, keepdims=True)
    assert (found.dtype, found.shape) == (np.float32, array.shape)
    np.testing.assert_allclose(found, array / np.maximum(lengths, 1e-12), rtol=1e-6)


def test_large_vectors_do_not_become_zero():
    np.testing.assert_allclose(run("L2Normalize", np.float32([3e30, 4e30])), [0.6, 0.8], rtol=1e-6)
    assert run("L2Normalize", np.zeros((2, 0))).shape == (2, 0)


@pytest.mark.parametrize(
    ("source", "data", "message"),
    [
        ("L2Normalize", "text", "`data` is of type str"),
        ("L2Normalize", np.array([1, 2]), "(float16, bfloat16, float32, float64), got int64 [2]"),
        ("L2Normalize(axis=1)", np.zeros(2), "L2Normalize works along axis 1, which float64 [2] does not have"),
    ],
)
def test_data_that_do_not_fit_are_named(source, data, message):
    with pytest.raises(hami.Error, match=re.escape(message)):
        run(source, data)
