"""Pick, L2Normalize and Detokenize."""

from __future__ import annotations

import re
from typing import Any

import hami
import numpy as np
import pytest


def run(source: str, data: Any) -> Any:
    with hami.pipe(source) as pipe:
        return pipe({"data": data})["result"]


def test_pick_takes_a_value_out_of_a_dict():
    assert run("Pick(key='b')", {"a": 1, "b": "two"}) == "two"


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


def test_ids_become_a_text_again(write):
    model = write()
    source = f"S[Tokenize(model='{model}'), Pick(key='input_ids'), Detokenize(model='{model}')]"
    with hami.pipe({"backend": source, "max": 8}) as pipe:
        texts = ["the cat sat", "", "dog"]
        assert [item["result"] for item in pipe([{"data": text} for text in texts])] == texts
    assert run(f"Detokenize(model='{model}',skip_special=false)", [2, 4, 3]) == "[CLS] the [SEP]"


@pytest.mark.parametrize(
    ("source", "data", "message"),
    [
        ("Pick(key='b')", {"a": 1}, "the dict has no key 'b'; it has ['a']"),
        ("Pick(key='b')", [1], "Pick takes a dict, got list"),
        ("L2Normalize", "text", "L2Normalize takes an array, got str"),
        ("L2Normalize", np.array([1, 2]), "got int64 [2]"),
        ("L2Normalize(axis=1)", np.zeros(2), "with an axis 1, got float64 [2]"),
        ("Detokenize", [4, 1_000_000], "the tokenizer has no token 1000000"),
        ("Detokenize", [-1], "the tokenizer has no token -1"),
        ("Detokenize", [0.5], "Detokenize takes integers [tokens], got float64 [1]"),
        ("Detokenize", np.zeros((2, 2), int), "got int64 [2, 2]"),
        ("Detokenize", "text", "Detokenize takes token ids, got str"),
    ],
)
def test_data_that_do_not_fit_fail_alone(write, source, data, message):
    source = f"Detokenize(model='{write()}')" if source == "Detokenize" else source
    with pytest.raises(hami.Error, match=re.escape(message)):
        run(source, data)
