"""Pool: turns the vectors of the tokens of a text into one vector, as the folder of the model says."""

from __future__ import annotations

from typing import Annotated, Any

import hami

from hami_text.model_folder import POOLINGS, ModelFolder, Pooling

MODULES = ("Transformer", "Pooling", "Normalize")


class Pool(hami.Backend):
    """Turn the vectors of the tokens of a text into its embedding.

    data: the result of a model: one array [1, tokens, size], or a dict of arrays with `last_hidden_state`,
        `token_embeddings` or `sentence_embedding`
    result: array [size] of float32
    normalize: key of the request, instead of the parameter
    dimensions: key of the request, the length to which the vector is cut before it is normalised

    The folder of the model says how: 1_Pooling/config.json and modules.json. PoolTensor of hami-tensor computes it.
    """

    max = 1024
    thread = "concurrent"
    lightweight = True

    model: Annotated[hami.types.FilePath, "a file of the model; its folder says how"]
    pooling: Annotated[str | None, f"{', '.join(POOLINGS)}, or several with +; default: that of the folder"] = None
    normalize: Annotated[bool | None, "divide the vector by its length; default: as modules.json says"] = None

    def init(self, options: Any) -> None:
        self._folder = ModelFolder.of(self.model)
        if self.pooling is None:
            self._folder.check_modules(MODULES)
            pooling = self._folder.pooling() or Pooling(())
        else:
            pooling = Pooling(tuple(self.pooling.split("+")))
            if unknown := [each for each in pooling.modes if each not in POOLINGS]:
                raise hami.ConfigError(f"Pool: unknown pooling {unknown[0]!r}; known are {', '.join(POOLINGS)}")
        self.delegate(
            "hami-tensor::PoolTensor",
            convert=hami.to_numpy,
            pooling=list(pooling.modes),
            normalize=self._folder.normalizes() if self.normalize is None else self.normalize,
            normalize_pooled=bool(self.normalize),
            include_prompt=pooling.include_prompt,
        )

    def forward(self, batch: list[Any]) -> None:
        """Fail the requests that PoolTensor leaves: it does not know how to pool their tokens."""
        for item in batch:
            item.fail(
                hami.ConfigError(
                    f"Pool: {self._folder.path} has no 1_Pooling/config.json, and the model has no output "
                    "sentence_embedding; name the pooling that the model was trained with: "
                    f"pooling = {' or '.join(POOLINGS)}"
                )
            )
