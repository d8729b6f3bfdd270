"""Folders of small text models: a tokenizer of whole words, and models whose results are easy to compute."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
WORDS = [*SPECIAL, "the", "cat", "sat", "on", "mat", "dog", "query:", "a", "very", "long", "text"]
SIZE = 4
VECTORS = np.random.default_rng(7).standard_normal((len(WORDS), SIZE)).astype(np.float32)


def write_tokenizer(folder: Path) -> None:
    """Write one as hubs have it: with a truncation and a padding, which must have no effect."""
    tokenizer = Tokenizer(models.WordLevel({word: i for i, word in enumerate(WORDS)}, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.add_special_tokens(SPECIAL)
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    tokenizer.enable_truncation(3)
    tokenizer.enable_padding(length=16)
    tokenizer.save(str(folder / "tokenizer.json"))


def embedding_nodes(types: bool) -> list[Any]:
    nodes = [helper.make_node("Gather", ["table", "input_ids"], ["words"])]
    if types:
        nodes.append(helper.make_node("Cast", ["token_type_ids"], ["types"], to=TensorProto.FLOAT))
        nodes.append(helper.make_node("Unsqueeze", ["types", "last"], ["types1"]))
        nodes.append(helper.make_node("Add", ["words", "types1"], ["typed"]))
    nodes.append(helper.make_node("Cast", ["attention_mask"], ["mask"], to=TensorProto.FLOAT))
    nodes.append(helper.make_node("Unsqueeze", ["mask", "last"], ["mask1"]))
    nodes.append(helper.make_node("Mul", ["typed" if types else "words", "mask1"], ["hidden"]))
    return nodes


def position_nodes() -> list[Any]:
    return [
        helper.make_node("Shape", ["input_ids"], ["length"], start=1, end=2),
        helper.make_node("Squeeze", ["length"], ["count"]),
        helper.make_node("Range", ["none", "count", "step"], ["places"]),
        helper.make_node("Cast", ["places"], ["place"], to=TensorProto.FLOAT),
        helper.make_node("Unsqueeze", ["place", "axis1"], ["place1"]),
        helper.make_node("Add", ["hidden", "place1"], ["placed"]),
    ]


def attention_nodes(output: str) -> list[Any]:
    """Attention over the tokens of the mask, and a product with weights before and after it."""
    return [
        helper.make_node("MatMul", ["hidden", "weights"], ["projected"]),
        helper.make_node("Transpose", ["projected"], ["keys"], perm=[0, 2, 1]),
        helper.make_node("MatMul", ["projected", "keys"], ["scores"]),
        helper.make_node("Unsqueeze", ["mask", "axis1"], ["mask2"]),
        helper.make_node("Sub", ["mask2", "one"], ["masked"]),
        helper.make_node("Mul", ["masked", "many"], ["bias"]),
        helper.make_node("Add", ["scores", "bias"], ["biased"]),
        helper.make_node("Softmax", ["biased"], ["attention"], axis=-1),
        helper.make_node("MatMul", ["attention", "projected"], ["context"]),
        helper.make_node("MatMul", ["context", "weights"], [output]),
    ]


def write_model(
    file: Path,
    output: str = "last_hidden_state",
    types: bool = False,
    extra: Sequence[str] = (),
    classes: int = 0,
    layer: bool = False,
    positions: bool = False,
) -> None:
    """Write a model: the vectors of the tokens, with `layer` after attention, or with `classes` sums as logits.

    With `positions`, its place in the row is added to each token, as by a table of absolute positions.
    """
    nodes = embedding_nodes(types)
    if classes:
        nodes.append(helper.make_node("ReduceSum", ["hidden", "axis1"], ["summed"], keepdims=0))
        nodes.append(helper.make_node("MatMul", ["summed", "choose"], [output]))
        result = helper.make_tensor_value_info(output, TensorProto.FLOAT, ["batch", classes])
    elif output == "sentence_embedding":
        nodes.append(helper.make_node("ReduceSum", ["hidden", "axis1"], [output], keepdims=0))
        result = helper.make_tensor_value_info(output, TensorProto.FLOAT, ["batch", SIZE])
    else:
        if positions:
            nodes += position_nodes()
        last = "placed" if positions else "hidden"
        nodes += attention_nodes(output) if layer else [helper.make_node("Identity", [last], [output])]
        result = helper.make_tensor_value_info(output, TensorProto.FLOAT, ["batch", "sequence", SIZE])
    names = ["input_ids", "attention_mask", *(["token_type_ids"] if types else []), *extra]
    graph = helper.make_graph(
        nodes,
        "text",
        [helper.make_tensor_value_info(name, TensorProto.INT64, ["batch", "sequence"]) for name in names],
        [result],
        [
            numpy_helper.from_array(VECTORS, "table"),
            numpy_helper.from_array(np.array([2]), "last"),
            numpy_helper.from_array(np.array([1]), "axis1"),
            numpy_helper.from_array(np.eye(SIZE, classes or 1, dtype=np.float32), "choose"),
            numpy_helper.from_array(VECTORS[:SIZE] @ VECTORS[:SIZE].T, "weights"),
            numpy_helper.from_array(np.array(0), "none"),
            numpy_helper.from_array(np.array(1), "step"),
            numpy_helper.from_array(np.float32(1), "one"),
            numpy_helper.from_array(np.float32(1e4), "many"),
        ],
    )
    file.parent.mkdir(parents=True, exist_ok=True)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), file)


def module(name: str, path: str = "") -> dict[str, Any]:
    return {"idx": 0, "name": "0", "path": path, "type": f"sentence_transformers.models.{name}"}


MODULES = [module("Transformer"), module("Pooling", "1_Pooling"), module("Normalize", "2_Normalize")]


def ids_of(text: str) -> list[int]:
    known = {word: i for i, word in enumerate(WORDS)}
    return [2, *(known.get(word, 1) for word in text.lower().split()), 3]


def vectors_of(text: str) -> Any:
    return VECTORS[ids_of(text)]
