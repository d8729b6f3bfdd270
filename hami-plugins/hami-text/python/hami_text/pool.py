"""Pool: turns the vectors of the tokens of a text into one vector."""

from __future__ import annotations

from typing import Annotated, Any

import hami
import numpy as np
from numpy.typing import NDArray

from hami_text.model_folder import POOLINGS, ModelFolder, Pooling
from hami_text.outputs import output_of

Vector = NDArray[np.float32]

POOLED = "sentence_embedding"  # an output of this name is pooled and normalised
OF_TOKENS = ("last_hidden_state", "token_embeddings")
MODULES = ("Transformer", "Pooling", "Normalize")


class Pool(hami.Backend):
    """Turn the vectors of the tokens of a text into its embedding.

    data: the result of a model: one array [1, tokens, size], or a dict of arrays with `last_hidden_state`,
        `token_embeddings` or `sentence_embedding`
    result: array [size] of float32
    normalize: key of the request, instead of the parameter
    dimensions: key of the request, the length to which the vector is cut before it is normalised

    The folder of the model says how: 1_Pooling/config.json and modules.json.
    """

    max = 1024
    thread = "concurrent"
    lightweight = True

    model: Annotated[hami.types.FilePath, "a file of the model; its folder says how"]
    pooling: Annotated[str | None, f"{', '.join(POOLINGS)}, or several with +; default: that of the folder"] = None
    normalize: Annotated[bool | None, "divide the vector by its length; default: as modules.json says"] = None

    def init(self, options: Any) -> None:
        folder = ModelFolder.of(self.model)
        self._path = folder.path
        if self.pooling is None:
            folder.check_modules(MODULES)
            self._pooling = folder.pooling()
        else:
            self._pooling = Pooling(tuple(self.pooling.split("+")))
            if unknown := [each for each in self._pooling.modes if each not in POOLINGS]:
                raise hami.ConfigError(f"Pool: unknown pooling {unknown[0]!r}; known are {', '.join(POOLINGS)}")
        self._normalizes = folder.normalizes() if self.normalize is None else self.normalize

    def forward(self, batch: list[Any]) -> None:
        for item in batch:
            try:
                item["result"] = self._embedding(item)
            except hami.Error as error:
                item.fail(error)

    def _embedding(self, item: Any) -> Vector:
        name, array = _output(item.get("data", None))
        wanted = item.get("normalize", None)
        if name == POOLED or array.ndim == 2:
            vector, normalizes = array.reshape(-1), bool(self.normalize)
        else:
            vector, normalizes = self._pooled(array, int(item.get("prompt_tokens", 0))), self._normalizes
        dimensions = item.get("dimensions", None)
        if dimensions is not None:
            if isinstance(dimensions, bool) or not isinstance(dimensions, int) or not 1 <= dimensions <= len(vector):
                raise hami.RequestError(f'Pool: "dimensions" must be from 1 to {len(vector)}, got {dimensions!r}')
            # A vector of length 1 is one again after the cut.
            normalizes = normalizes or name == POOLED
            vector = vector[:dimensions]
        if normalizes if wanted is None else wanted:
            vector = vector / max(float(np.linalg.norm(vector)), 1e-12)
        return np.ascontiguousarray(vector, np.float32)

    def _pooled(self, array: NDArray[Any], prompt_tokens: int) -> Vector:
        if self._pooling is None:
            raise hami.ConfigError(
                f"Pool: {self._path} has no 1_Pooling/config.json, and the model has no output {POOLED}; name the "
                f"pooling that the model was trained with: pooling = {' or '.join(POOLINGS)}"
            )
        vectors = array[0].astype(np.float32, copy=False)
        if not self._pooling.include_prompt:
            vectors = vectors[prompt_tokens:]
        if not len(vectors):
            raise hami.RequestError("Pool: the text has no tokens to pool")
        return np.concatenate([_pooled(vectors, mode) for mode in self._pooling.modes])


def _pooled(vectors: Vector, mode: str) -> Vector:
    """Return one vector for those of all tokens, in float32."""
    pooled: Vector
    if mode == "mean":
        pooled = vectors.mean(0)
    elif mode == "cls":
        pooled = vectors[0]
    elif mode == "max":
        pooled = vectors.max(0)
    elif mode == "lasttoken":
        pooled = vectors[-1]
    elif mode == "mean_sqrt_len_tokens":
        pooled = vectors.sum(0) / np.float32(np.sqrt(len(vectors)))
    else:
        weights = np.arange(1, len(vectors) + 1, dtype=np.float32)
        pooled = weights @ vectors / weights.sum()
    return pooled


def _output(data: Any) -> tuple[str, NDArray[Any]]:
    """Return the output of a model that has the embedding, and its name."""
    name, array = output_of(data, (POOLED, *OF_TOKENS), "Pool")
    if array.ndim not in (2, 3) or array.shape[0] != 1 or array.dtype.kind not in "fV":
        raise hami.RequestError(
            f"Pool takes an array of floating-point numbers [1, tokens, size] or [1, size], got {array.dtype} "
            f"{list(array.shape)}"
        )
    return name, array
