"""The folder of a small text model."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from small_models import WORDS, write_model, write_tokenizer


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    """write(model={…}, **files) writes the folder of a model and returns its ONNX file."""

    def write(model: dict[str, Any] | None = None, *, file: str = "model.onnx", **files: Any) -> Path:
        folder = tmp_path / f"model{len(list(tmp_path.iterdir()))}"
        folder.mkdir()
        write_tokenizer(folder)
        write_model(folder / file, **(model or {}))
        contents = {"config": {"vocab_size": len(WORDS), "max_position_embeddings": 12, "pad_token_id": 0}, **files}
        for name, content in contents.items():
            path = folder / {"pooling": "1_Pooling/config"}.get(name, name)
            path.parent.mkdir(exist_ok=True)
            path.with_name(path.name + ".json").write_text(json.dumps(content))
        return folder / file

    return write
