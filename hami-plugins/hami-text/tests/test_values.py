"""Pick and Detokenize."""

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
