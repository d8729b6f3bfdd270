"""OnnxModel: opens and examines the model of OnnxTensor, and runs it if its values are not all tensors of numbers."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any

import hami
from hami_model_check import row_watch

from hami_onnx._batch import run_batch
from hami_onnx._feed import convert_values
from hami_onnx._model import Model
from hami_onnx._model_backend import OnnxModelBackend
from hami_onnx._native import NativeSession

_BACKEND = "OnnxTensor"
_SHARED = -1  # in the option `onnx_plan`: an input or output without rows


class OnnxModel(OnnxModelBackend):
    """Open the model of OnnxTensor, and find out along which axes its requests are joined.

    Every OnnxTensor has one, without being asked. It runs models with strings, sequences, maps, optional values or
    small floats, and those of other execution providers than the CPU: `data` and `result` are those of OnnxTensor, as
    numpy arrays. For all other models it converts data that are not of the model's types, and compares the rows that
    OnnxTensor watches.
    """

    profile: Annotated[
        Path | None, "file for the times of the operators, for hami trace; written when the pipe is closed"
    ] = None

    _model: Model | None = None
    _has_remarked = False

    def init(self, options: Any) -> None:
        self._model = self.open_model(options, _BACKEND)
        if self.profile is not None:
            _check_profile(self.profile, self._model, self.model)
        options["engine_inputs"] = self._model.announced_inputs()
        options["onnx_plan"] = _plan_of(self._model, self.profile)

    def max(self) -> int | str | None:
        if self._model is None:
            return None
        return (self._model.rows.fixed or "auto") if self._model.rows.joins else 1

    def forward(self, batch: list[Any]) -> None:
        assert self._model is not None, "forward after close"
        if isinstance(self._model.session, NativeSession):
            for item in batch:
                self._do(item, self._model, item["data"])
        else:
            self.count("groups", run_batch(batch, self._model, _BACKEND, self.count))
        watch = self._model.watch
        if watch is not None and watch.difference is not None and not self._has_remarked:
            self._has_remarked = True
            self.remark(f"{_BACKEND}: {watch.finding}")

    def close(self) -> None:
        self._model = None

    @staticmethod
    def _do(item: Any, model: Model, task: dict[str, Any]) -> None:
        """Do what the native library asks for: convert data, or compare a row alone with itself in a batch."""
        try:
            if task["task"] == "convert":
                item["result"] = convert_values(task["data"], model, _BACKEND)
                return
            assert model.watch is not None
            together, alone = ([hami.to_numpy(value) for value in task[key]] for key in ("together", "alone"))
            names = [spec.name for spec in model.outputs]
            item["result"] = model.watch.compare(names, together, lambda: alone, rows=task["rows"])
        except hami.Error as error:
            item.fail(error)


def _check_profile(profile: Path, model: Model, path: object) -> None:
    """Raise ConfigError if the model has no profile, or the file cannot be written."""
    if not isinstance(model.session, NativeSession):
        raise hami.ConfigError(
            f'{_BACKEND}: "profile" needs a model that runs in C++, and "{path}" runs in Python (see `hami show`); '
            "the package onnxruntime has SessionOptions.enable_profiling"
        )
    try:
        profile.open("ab").close()
    except OSError as error:
        raise hami.ConfigError(f'{_BACKEND}: "profile" = "{profile}" cannot be written: {error.strerror}') from error


def _plan_of(model: Model, profile: Path | None) -> dict[str, Any]:
    """Return the option `onnx_plan`, which src/plan.hpp explains."""
    session, rows = model.session, model.rows
    if not isinstance(session, NativeSession):
        return {"native": False}
    return {
        "native": True,
        "settings": {**session.settings.plan(), "profile": os.path.abspath(profile) if profile else ""},
        "joins": rows.joins,
        "fixed": rows.fixed or 0,
        "runs_one": rows.runs_one,
        "input_axes": _axes(rows.input_axes),
        "output_axes": _axes(rows.output_axes),
        "lone_axes": _axes(rows.lone_axes),
        "casts": model.cast is not False,
        "inputs": model.keys.chosen,
        "why": model.joining.reason,
        "stops": model.joining.source != "declared",
        "watch_every": row_watch.EVERY if model.watch is not None else 0,
    }


def _axes(axes: tuple[int | None, ...]) -> list[int]:
    return [_SHARED if axis is None else axis for axis in axes]
