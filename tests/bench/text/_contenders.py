"""The contenders: each embeds one text for one caller, and a list of texts. Imported by the environment of each.

`one` may be called by any number of threads; `aone` is its counterpart for those that have an event loop.
"""

from __future__ import annotations

import asyncio
import os
import threading
from typing import Any, ClassVar

import numpy as np


class Contender:
    """A library in its recommended configuration, with the folder of the model."""

    def one(self, text: str) -> Any:
        return self.many([text])[0]

    def many(self, texts: list[str]) -> Any:
        raise NotImplementedError

    def tokenized(self, text: str) -> Any:
        raise NotImplementedError


class Hami(Contender):
    """The packaged pipeline, without a setting."""

    engine: ClassVar[dict[str, Any]] = {}  # keys of the node of the model

    def __init__(self, folder: str) -> None:
        import hami

        self.pipe = hami.pipe({"extends": "embed", "embed": self.engine, "global": {"model": folder}})
        as_in_embed = {"instance_num": 2, "max": 64, "batching": "greedy", "model": f"{folder}/model.onnx"}
        self.tokens = hami.pipe({"backend": "Tokenize(inputs=false)", **as_in_embed})

    def one(self, text: str) -> Any:
        return self.pipe({"data": text})["result"]

    def many(self, texts: list[str]) -> Any:
        return [request["result"] for request in self.pipe([{"data": text} for text in texts])]

    def tokenized(self, text: str) -> Any:
        return self.tokens({"data": text})["result"]


class HamiByCore(Hami):
    """The same with one thread for each run, also for one that has no other beside it."""

    engine: ClassVar[dict[str, Any]] = {"threads": 1}


class ByHand(Contender):
    """What a good program has by hand: sorted by length, 32 a run, in the same engine. `one` runs a text alone."""

    def __init__(self, folder: str) -> None:
        import onnxruntime
        from tokenizers import Tokenizer

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = len(os.sched_getaffinity(0))  # by default, those of the machine
        file = f"{folder}/model.onnx"
        self.session = onnxruntime.InferenceSession(file, options, providers=["CPUExecutionProvider"])
        self.tokenizer = Tokenizer.from_file(f"{folder}/tokenizer.json")
        self.tokenizer.no_padding()
        self.tokenizer.enable_truncation(512)
        self.names = {each.name for each in self.session.get_inputs()}

    def many(self, texts: list[str]) -> Any:
        found = self.tokenizer.encode_batch_fast(texts)
        order = sorted(range(len(texts)), key=lambda i: len(found[i]))
        vectors: list[Any] = [None] * len(texts)
        for begin in range(0, len(order), 32):
            group = order[begin : begin + 32]
            longest = max(len(found[i]) for i in group)
            ids, mask = (np.zeros((len(group), longest), np.int64) for _ in range(2))
            for row, i in enumerate(group):
                ids[row, : len(found[i])] = found[i].ids
                mask[row, : len(found[i])] = 1
            inputs = {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}
            (hidden,) = self.session.run(None, {name: inputs[name] for name in inputs.keys() & self.names})
            pooled = np.einsum("btd,bt->bd", hidden, mask.astype(np.float32)) / mask.sum(1, keepdims=True)
            for i, vector in zip(group, pooled, strict=True):
                vectors[i] = vector / np.linalg.norm(vector)
        return vectors


class Fastembed(Contender):
    def __init__(self, folder: str) -> None:
        from fastembed import TextEmbedding
        from fastembed.common.model_description import ModelSource, PoolingType

        TextEmbedding.add_custom_model(
            model="bench/model",
            pooling=PoolingType.MEAN,
            normalization=True,
            sources=ModelSource(hf="bench/model"),
            dim=384,
            model_file="model.onnx",
        )
        self.model = TextEmbedding("bench/model", specific_model_path=folder)

    def many(self, texts: list[str]) -> Any:
        return list(self.model.embed(texts))


class SentenceTransformers(Contender):
    backend = "torch"

    def __init__(self, folder: str) -> None:
        from sentence_transformers import SentenceTransformer

        given = {"model_kwargs": {"file_name": "model.onnx"}} if self.backend == "onnx" else {}
        self.model = SentenceTransformer(folder, device="cpu", backend=self.backend, local_files_only=True, **given)

    def many(self, texts: list[str]) -> Any:
        return self.model.encode(texts, show_progress_bar=False)


class SentenceTransformersOnnx(SentenceTransformers):
    backend = "onnx"


class Infinity(Contender):
    def __init__(self, folder: str) -> None:
        from infinity_emb import AsyncEmbeddingEngine, EngineArgs

        self.loop = asyncio.new_event_loop()
        threading.Thread(target=self.loop.run_forever, daemon=True).start()
        self.engine = AsyncEmbeddingEngine.from_args(
            EngineArgs(model_name_or_path=folder, engine="torch", device="cpu", model_warmup=False)
        )
        self.wait(self.engine.astart())

    def wait(self, coroutine: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result()

    async def aone(self, text: str) -> Any:
        return (await self.engine.embed(sentences=[text]))[0][0]

    def many(self, texts: list[str]) -> Any:
        return self.wait(self.engine.embed(sentences=texts))[0]


CONTENDERS: dict[str, type[Contender]] = {
    "hami": Hami,
    "hami by core": HamiByCore,
    "by hand": ByHand,
    "fastembed": Fastembed,
    "sentence-transformers": SentenceTransformers,
    "sentence-transformers on onnxruntime": SentenceTransformersOnnx,
    "infinity": Infinity,
}


def memory() -> int:
    """Return the most memory that this process has had, in bytes, since it was last set back."""
    with open("/proc/self/status", encoding="ascii") as status:
        return next(int(line.split()[1]) << 10 for line in status if line.startswith("VmHWM"))


def set_memory_back() -> None:
    with open("/proc/self/clear_refs", "w", encoding="ascii") as file:
        file.write("5")
