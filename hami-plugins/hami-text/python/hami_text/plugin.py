"""Registers the backends of this package. They, and tokenizers with them, are imported when a pipeline uses them."""

from __future__ import annotations

from typing import Any

import pluggy

hookimpl = pluggy.HookimplMarker("hami")


@hookimpl
def hami_register(registry: Any) -> None:
    registry.add("Detokenize", "hami_text.detokenize:Detokenize")
    registry.add("NameEntities", "hami_text.name_entities:NameEntities")
    registry.add("PairTexts", "hami_text.rank_texts:PairTexts")
    registry.add("Pick", "hami_text.values:Pick")
    registry.add("Pool", "hami_text.pool:Pool")
    registry.add("RankTexts", "hami_text.rank_texts:RankTexts")
    registry.add("TextInputs", "hami_text.tokenize:TextInputs")
    registry.add("Tokenize", "hami_text.tokenize:Tokenize")
    registry.add("TopLabels", "hami_text.top_labels:TopLabels")


@hookimpl
def hami_open_model(path: str) -> dict[str, Any] | None:
    from hami_text.model_folder import ModelFolder

    file = ModelFolder.in_layout_of_hubs(path)
    return None if file is None else {"model": file}


@hookimpl
def hami_data_type(backend: str) -> str | None:
    return "text" if backend in ("Tokenize", "PairTexts") else None


@hookimpl
def hami_signature(backend: str, params: dict[str, Any]) -> dict[str, Any] | None:
    if backend == "Tokenize" and not params["pair"]:
        return {"inputs": [{"name": "data", "dtype": "string", "shape": []}], "outputs": []}
    if backend == "PairTexts":
        shapes = {"query": [1], "texts": [-1]}
        return {"inputs": [{"name": name, "dtype": "string", "shape": shapes[name]} for name in shapes], "outputs": []}
    if backend == "RankTexts":
        return {"inputs": [], "outputs": [{"name": "result", "dtype": "", "shape": []}]}
    if backend == "Pool":
        from hami_text.model_folder import ModelFolder

        size = ModelFolder.of(params["model"]).embedding_size(params["pooling"])
        return {"inputs": [], "outputs": [{"name": "result", "dtype": "float32", "shape": [size or -1]}]}
    return None


@hookimpl
def hami_report() -> dict[str, str]:
    from importlib.metadata import version

    return {"tokenizers": version("tokenizers")}
