"""keep_bits: chooses the numbers of rows that a model runs with, so that a row's result is always equal bit for bit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import hami
from hami_model_check.findings import recall, remember
from hami_model_check.invariance import compare_sizes

from hami_onnx._joining import engine_name, row_input
from hami_onnx._model import Model
from hami_onnx.session import find_files

_SIZES = (2, 4, 8, 16, 32)


def keep_bits(
    model: Model, path: str, *, settings: object, limits: Mapping[str, int], remark: Any, backend: str
) -> None:
    """Let a model with any number of rows run with one row, or with the largest number for which each row is the same.

    Batches are filled up to this number. The numbers are measured when the model is opened, and kept with the finding
    about its rows. If there is none, rows run one by one.

    Args:
        model: its rows are known; nothing changes if requests are not joined.
        path, settings, limits, backend: as for join_rows.
        remark: tells the user what was found.

    Raises:
        hami.ConfigError: the rows of a model with a fixed number of rows are not the same at each place of a batch.
    """
    rows = model.rows
    if not rows.joins or rows.fixed == 1:
        return
    sizes = _SIZES if rows.fixed is None else (rows.fixed,)
    files = [stamp.path for stamp in find_files(path, limits, backend)[1]]
    parts: dict[str, Any] = {"engine": engine_name(), "settings": ["equal sizes", settings, rows.input_axes, sizes]}
    kept = recall(files, **parts)
    equal = _equal_sizes(model, sizes) if kept is None else [int(size) for size in kept["equal"]]
    if kept is None:
        remember(files, {"equal": equal}, **parts)
    if rows.fixed is None:
        model.rows = replace(rows, fixed=max(equal, default=1), runs_one=True)
        if not equal:
            remark(f"{backend} runs rows one by one: no other number of rows gives each row the same bits as alone")
    elif not equal:
        raise hami.ConfigError(
            f'{backend}: "batch_invariant" is not possible for "{path}": the bits of a row depend on its place in the '
            f"batch of {rows.fixed} rows; export the model with a free batch axis"
        )


def _equal_sizes(model: Model, sizes: Sequence[int]) -> list[int]:
    inputs = [row_input(spec, axis) for spec, axis in zip(model.inputs, model.rows.input_axes, strict=True)]
    names = [spec.name for spec in model.outputs]
    try:
        found = compare_sizes(lambda arrays: dict(zip(names, model.run(arrays), strict=True)), inputs, sizes=sizes)
    except hami.ConfigError:  # the model does not run on values that could be made for it
        return []
    return [each.rows for each in found if each.is_equal]
