"""TorchModel: a torch program as a backend; gathers requests along axis 0, runs, gives each its rows."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import hami

from hami_torch._batch import Feed, Inputs, feed_of, run_groups, run_together, versions
from hami_torch._device import as_current
from hami_torch._graphs import Graphs
from hami_torch._program import Program, Source, first_line, open_program
from hami_torch._rows import gathered
from hami_torch._scaling import Scaling
from hami_torch._tensor import TensorBackend, show, size_of
from hami_torch._torch import torch


class TorchModel(TensorBackend):
    """Run a torch program. `data`: a tensor on the device, or its inputs as a list in their order or a dict by name.

    `model` is a file of torch.export (.pt2), of AOTInductor (.pt2), or TorchScript; or `factory` names what makes an
    nn.Module. Axis 0 is the batch: requests of equal shapes run together, each with the rows it brought
    (`request_size`, 1 if absent). The result has the form that the program gives: a tensor, a list or a dict.
    """

    model: Annotated[Path | None, "the file: .pt2, or TorchScript"] = None
    factory: Annotated[str | None, "package.module:name of what makes an nn.Module"] = None
    arguments: Annotated[list[str], "of the factory, each key=value"] = []  # noqa: RUF012
    weights: Annotated[Path | None, "of what the factory makes: a state dict or .safetensors; no code in it runs"] = (
        None
    )
    dtype: Annotated[
        Literal["float32", "float16", "bfloat16"] | None,
        "of the weights and of floating point input; if not said: as is",
    ] = None
    input_mean: Annotated[list, "per channel, or one for all: (data * input_scale - input_mean) / input_std"] = []  # noqa: RUF012
    input_std: Annotated[list, "per channel, or one for all; not 0"] = []  # noqa: RUF012
    input_scale: Annotated[float, "factor of the input, applied first, often 1/255"] = 1.0
    channels_last: Annotated[bool, "lay pictures out as N x H x W x C in memory"] = False
    row_shape: Annotated[list | None, "of one row of the input, without axis 0: runs once at the start"] = None
    row_dtype: Annotated[str | None, "of the input that `row_shape` describes; if not said: `dtype`, or float32"] = None
    rows: Annotated[int | None, "rows of that run; what torch.compile made is tuned for so many"] = None
    graphs: Annotated[list, "batch sizes to capture as CUDA graphs; needs `row_shape`"] = []  # noqa: RUF012

    _program: Program | None = None
    _scaling: Scaling | None = None
    _graphs: Graphs | None = None

    def init(self, options: Any) -> None:
        super().init(options)
        with as_current(self.torch_device):  # for what a factory or a model makes on "cuda"
            self._open()

    def _open(self) -> None:
        self._dtype = getattr(torch, self.dtype) if self.dtype else None
        sizes = _numbers(self.graphs, "graphs")
        shape = None if self.row_shape is None else _numbers(self.row_shape, "row_shape")
        if sizes and (self.torch_device.type != "cuda" or shape is None):
            lacks = (
                "a CUDA device"
                if self.torch_device.type != "cuda"
                else '"row_shape", the shape of one row of its input'
            )
            raise hami.ConfigError(f'TorchModel: "graphs" needs {lacks}')
        if self.rows is not None and (sizes or shape is None or self.rows < 1):
            raise hami.ConfigError(
                'TorchModel: "rows" is a whole number from 1 on, beside "row_shape" and without "graphs", '
                f"got {self.rows}"
            )
        source = Source(
            str(self.model or ""),
            self.factory or "",
            tuple(self.arguments),
            str(self.weights or ""),
            self.torch_device,
            self._dtype,
            self.channels_last,
        )
        self._program = open_program(source, "TorchModel")
        if self.input_mean or self.input_std or self.input_scale != 1.0:
            self._scaling = Scaling(
                self.input_mean or [0.0],
                self.input_std or [1.0],
                self.input_scale,
                self._dtype or torch.float32,
                self.torch_device,
                owner="TorchModel",
                names=("input_mean", "input_std"),
            )
        if shape is not None:
            self._start(shape, sizes)

    def _start(self, shape: list[int], sizes: list[int]) -> None:
        assert self._program is not None
        kind = getattr(torch, self.row_dtype or (self.dtype if self._scaling is None else None) or "float32", None)
        if not isinstance(kind, torch.dtype):
            raise hami.ConfigError(f'TorchModel: torch has no dtype "{self.row_dtype}", given as "row_dtype"')
        if self._scaling is not None and kind != torch.float32:
            raise hami.ConfigError(
                f'TorchModel: the input is scaled in float32, got "row_dtype" = "{self.row_dtype}"; leave that out'
            )
        starts = self._starts(sizes)
        example = torch.zeros((max(starts), *shape), dtype=kind, device=self.torch_device)
        if self.channels_last and example.ndim == 4:
            example = example.contiguous(memory_format=torch.channels_last)
        with torch.no_grad():
            try:
                if self._scaling is not None:
                    self._scaling.check(example)
                for rows in starts:
                    self._run_program(example[:rows])
            except torch.cuda.OutOfMemoryError:
                raise
            except Exception as error:
                raise hami.ConfigError(
                    f'TorchModel: the model does not take {show(example)}, as "row_shape" says: {first_line(error)}'
                ) from error
            if sizes:
                self._graphs = Graphs(self._run_program, sizes, example, "TorchModel", self._program.call)

    def _starts(self, sizes: list[int]) -> list[int]:
        """Return of how many rows to run before requests come.

        torch.compile compiles for the number that it meets first, for the next for any number, tuned for that one, and
        always for one row by itself.
        """
        assert self._program is not None
        if not self._program.compiles:
            return [max(sizes, default=self.rows or self._program.rows or 1)]
        return sorted(sizes, reverse=True)[:2] if sizes else [1, max(2, self.rows or 1)]

    def min(self) -> int | None:
        return self._program.rows if self._program else None

    def max(self) -> int | None:
        if self._graphs is not None:
            return self._graphs.sizes[-1]
        return self._program.most if self._program else None

    def run(self, batch: list[Any]) -> None:
        assert self._program is not None, "forward after close"
        found = self.parts(batch)
        if found is not None and self._fits_together(batch, *found):
            parts, rows = found
            run_together(batch, Inputs([parts], None), rows, self._call, self)
        else:
            run_groups(self.read(batch, self._feed), self._call, self)

    def _fits_together(self, batch: list[Any], parts: list[torch.Tensor], rows: list[int]) -> bool:
        return rows == list(map(size_of, batch)) and (self._scaling is None or self._scaling.fits(parts[0]))

    def _feed(self, item: Any) -> Feed:
        feed = feed_of(item, self.check)
        if self._scaling is not None:
            if feed.form is not None:
                raise hami.RequestError(
                    'TorchModel: "input_mean", "input_std" and "input_scale" go with one tensor, '
                    f"got a {type(item['data']).__name__}"
                )
            self._scaling.check(feed.tensors[0])
        return feed

    def _run_program(self, *given: torch.Tensor, **named: torch.Tensor) -> Any:
        program = self._program
        assert program is not None
        if self._scaling is not None:
            given = (self._scaling(*given),)
        elif program.writes or not program.ran:
            with torch.inference_mode(False):  # what a caller who is in that mode makes has no version
                given, named = tuple(map(torch.clone, given)), {name: part.clone() for name, part in named.items()}
        tensors = [*given, *named.values()]
        before = versions(tensors)
        try:
            output = program.run(*given, **named)
            program.ran = True
            return program.given_away(output)
        finally:
            if versions(tensors) != before:
                program.writes = True

    def _call(self, inputs: Inputs, rows: int) -> Any:
        if self._graphs is not None and inputs.form is None:
            parts = inputs.columns[0]
            if self._graphs.fits(parts[0].shape[1:], self._dtype_for(parts[0]), rows):
                return self._graphs.run(parts, rows)
        tensors = [self._laid_out(gathered(parts)) for parts in inputs.columns]
        if isinstance(inputs.form, tuple):
            return self._run_program(**dict(zip(inputs.form, tensors, strict=True)))
        return self._run_program(*tensors)

    def _dtype_for(self, tensor: torch.Tensor) -> torch.dtype:
        """Return what a tensor is cast to: floating point input to the dtype of the weights, where `dtype` says it."""
        if self._scaling is not None:
            return torch.float32  # and by the scaling to the dtype of the weights
        return self._dtype if self._dtype is not None and tensor.is_floating_point() else tensor.dtype

    def _laid_out(self, tensor: torch.Tensor) -> torch.Tensor:
        dtype = self._dtype_for(tensor)
        if tensor.dtype != dtype:
            tensor = tensor.to(dtype)
        if self.channels_last and tensor.ndim == 4:
            return tensor.contiguous(memory_format=torch.channels_last)
        return tensor

    def close(self) -> None:
        try:
            if self._graphs is not None:
                self._graphs.close()
        finally:
            self._graphs = self._program = None


def _numbers(values: list[Any], name: str) -> list[int]:
    try:
        numbers = [int(value) for value in values]
    except (TypeError, ValueError):
        numbers = [0]
    if any(number < 1 for number in numbers):
        raise hami.ConfigError(f'TorchModel: "{name}" is a list of whole numbers from 1 on, got {values!r}')
    return numbers
