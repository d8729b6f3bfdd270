"""The folder of a small text model."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from small_models import WORDS, write_model, write_tokenizer

sys.path.append(str(Path(__file__).resolve().parents[3] / "tests" / "plugins"))  # together.py


def writer(folder: Path) -> Callable[..., Path]:
    """Return write(model={…}, **files), which writes the folder of a model and returns its ONNX file."""

    def write(model: dict[str, Any] | None = None, *, file: str = "model.onnx", **files: Any) -> Path:
        made = folder / f"model{len(list(folder.iterdir()))}"
        made.mkdir()
        write_tokenizer(made)
        write_model(made / file, **(model or {}))
        contents = {"config": {"vocab_size": len(WORDS), "max_position_embeddings": 12, "pad_token_id": 0}, **files}
        for name, content in contents.items():
            path = made / {"pooling": "1_Pooling/config"}.get(name, name)
            path.parent.mkdir(exist_ok=True)
            path.with_name(path.name + ".json").write_text(json.dumps(content))
        return made / file

    return write


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    return writer(tmp_path)


@pytest.fixture(scope="module")
def write_in(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    return writer(tmp_path_factory.mktemp("models"))
