"""TorchModel: run a torch program on batches of requests, concatenated along axis 0."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Annotated, Any, Literal
from weakref import WeakSet

import hami
from hami_model_check.joining import Measurement
from hami_model_check.row_watch import EVERY, RowWatch, shared_watch
from hami_tensor.model_keys import ModelKeys, give_result
from hami_tensor.values import Cast, checked_cast

from hami_torch import _native
from hami_torch._auto_graphs import AutoGraphs, Row, allowed, difference
from hami_torch._batch import (
    BatchInput,
    RequestInput,
    kind_of,
    read_request,
    run_group,
    run_together,
    tensor_versions,
)
from hami_torch._cast import declared_data
from hami_torch._device import as_current
from hami_torch._graphs import Graphs
from hami_torch._joining import coarsest_type, decide, measure_rows, node_count, settings_of
from hami_torch._program import InputSpec, Program, Source, first_line, open_program
from hami_torch._rows import concatenated
from hami_torch._scaling import Scaling
from hami_torch._streams import is_in_guard
from hami_torch._tensor import Structure, TensorBackend, casts_safely, dtype_name, show, structure_of
from hami_torch._torch import torch
from hami_torch._types import Batch, Request


class TorchModel(TensorBackend):
    """Run a torch model on `data`: one tensor on the device, a list of its inputs in order, or a dict of them by name.

    Without `data`, each input is the key of its name, and the entries of a dict that the model returns are also keys.

    The model is a file (`model`) or an nn.Module that a function makes (`factory`). Axis 0 of every input is the
    batch. Requests of equal shapes and dtypes run together if a test shows at the start that rows are independent;
    other requests run one by one. If the inputs are known, from torch.export or `row_shape`, data without the batch
    axis is one row, and values are converted as `cast` says. The result has the structure of the model's output, a
    tensor, a list or a dict, with the rows of the request.
    """

    lightweight = True  # all instances share one program
    instances_on_device = 3  # each has graphs of its own: one decodes pictures, one runs the model, one returns results

    model: Annotated[
        hami.types.FilePath | None, "file of torch.export.save (.pt2), AOTInductor package (.pt2), or TorchScript"
    ] = None
    factory: Annotated[str | None, "package.module:name of a function or class that makes an nn.Module"] = None
    arguments: Annotated[list[str], "arguments of the factory, each key=value"] = []  # noqa: RUF012
    weights: Annotated[
        hami.types.FilePath | None, "state dict or .safetensors for the factory's module; no code in it runs"
    ] = None
    dtype: Annotated[
        Literal["float32", "float16", "bfloat16"] | None,
        "dtype of the weights and of floating-point inputs; default: unchanged",
    ] = None
    input_mean: Annotated[list[Any], "per channel or one for all: (data * input_scale - input_mean) / input_std"] = []  # noqa: RUF012
    input_std: Annotated[list[Any], "per channel or one for all; must not be 0"] = []  # noqa: RUF012
    input_scale: Annotated[float, "factor that is applied to the input first, often 1/255"] = 1.0
    channels_last: Annotated[bool, "store images as N x H x W x C in memory"] = False
    row_shape: Annotated[list[Any] | None, "input shape without axis 0; the model then runs once during init"] = None
    row_dtype: Annotated[str | None, "dtype of that input; default: `dtype`, or float32"] = None
    rows: Annotated[int | None, "rows of that run; torch.compile optimizes for this number"] = None
    graphs: Annotated[
        list[Any], "batch sizes to capture as CUDA graphs, with `row_shape`; auto: those that run; false: none"
    ] = ["auto"]  # noqa: RUF012
    inputs: Annotated[
        list[str],
        "read each input from the key of its name: the names of all inputs; default: if there is no `data`",
    ] = []  # noqa: RUF012
    cast: Annotated[str, "conversion of inputs: exact (values that the declared type has), safe, or false"] = "exact"
    batched: Annotated[
        bool | None, "whether requests are joined; default: if a test shows that rows are independent"
    ] = None

    _program: Program | None = None
    _scaling: Scaling | None = None
    _graphs: Graphs | None = None
    _auto_graphs: AutoGraphs | None = None
    _graph_bytes = 0
    _inputs: list[InputSpec] | None = None
    _joins = False
    _watch: RowWatch | None = None
    _has_remarked = False
    _has_asked_native = False
    _keys = ModelKeys("TorchModel", None)
    _cast: Cast = "exact"

    def init(self, options: Any) -> None:
        super().init(options)
        with as_current(self.torch_device):  # for tensors that a factory or a model creates on "cuda"
            self._open()
        if self._inputs is not None and self._scaling is None:
            options["engine_inputs"] = [  # for FixTensor
                {
                    "name": spec.name,
                    "dtype": dtype_name(spec.dtype),
                    "shape": list(spec.shape),
                    "device": str(self.torch_device),
                    "batch_axis": True,
                }
                for spec in self._inputs
            ]

    def _open(self) -> None:
        self._dtype = getattr(torch, self.dtype) if self.dtype else None
        self._cast = checked_cast(self.cast, "TorchModel")
        graphs = allowed(self.graphs)
        sizes = [] if isinstance(graphs, bool) else _positive_integers(graphs, "graphs")
        shape = None if self.row_shape is None else _positive_integers(self.row_shape, "row_shape")
        if sizes and self.torch_device.type != "cuda":
            raise hami.ConfigError('TorchModel: "graphs" needs a CUDA device; remove "graphs" to run on the CPU')
        if sizes and shape is None:
            raise hami.ConfigError('TorchModel: "graphs" needs "row_shape", the shape of one row of the input')
        if self.rows is not None and (sizes or shape is None or self.rows < 1):
            raise hami.ConfigError(
                'TorchModel: "rows" must be an integer of at least 1, and it needs "row_shape" without "graphs"; '
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
        self._inputs = self._known_inputs(shape, self._program)
        known = self._program.inputs  # with their names
        names = None if known is None else [spec.name for spec in known]
        self._keys = ModelKeys("TorchModel", names, chosen=self.inputs)
        if shape is not None:
            self._prepare(shape, sizes, self._program)
        self._decide(source, self._program)
        if graphs is True:
            self._auto_graphs = self._graphs_on_demand(self._program)

    def _graphs_on_demand(self, program: Program) -> AutoGraphs | None:
        """Return what captures the graphs of this program once it runs; None: it is left as it is.

        torch.compile has launches of its own, and requests that run one by one come in every shape.
        """
        if self.torch_device.type != "cuda" or not self._joins or program.compiles:
            return None
        if not isinstance(program.call, torch.nn.Module) or not Graphs.are_supported():
            return None
        coarsest = {"float16": 1e-2, "bfloat16": 8e-2}.get(coarsest_type(program, self.torch_device), 1e-4)

        def capture(sizes: Sequence[int], row: Row) -> Graphs:
            if program.rows:
                sizes = [program.rows]
            elif isinstance(limit := program.max_rows, int):
                sizes = [size for size in sizes if size <= limit]
            example = torch.zeros((sizes[-1], *row.shape), dtype=row.dtype, device=self.torch_device)
            return Graphs(self._run_program, sizes, self._laid_out(example), "TorchModel", program.call)

        return AutoGraphs(
            self.torch_device,
            capture,
            lambda graphs, example: difference(graphs, self._run_program, example, coarsest),
            self._use_graphs,
            self.remark,
            program.auto_graphs.setdefault(str(settings_of(vars(self))), WeakSet()),
        )

    def _use_graphs(self, graphs: Graphs, taken: int) -> None:
        """Replace the graphs, which take so many bytes."""
        earlier, self._graphs = self._graphs, graphs
        self._has_asked_native = False
        self.count("graph_bytes", taken - self._graph_bytes)
        self._graph_bytes = taken
        if earlier is not None:
            earlier.close()

    def _decide(self, source: Source, program: Program) -> None:
        """Find out whether requests may be joined."""
        inputs = self._inputs
        joining = decide(
            source,
            program,
            batched=self.batched,
            settings=settings_of(vars(self)),
            measure=None if inputs is None else lambda: self._measure(program, inputs),
        )
        if inputs is None and not joining.joins and joining.source == "none":
            why = 'the inputs of the model are unknown, so that it cannot be tested; set "row_shape"'
            joining = replace(joining, why=why)
        self._joins = joining.joins
        if not joining.joins:
            if self._graphs is not None:
                self._graphs.pads = False
            if self.batched is not False:
                self.remark(f"TorchModel runs requests one by one: {joining.explained}")
        elif joining.source != "declared" or joining.verdict != "mixes":
            self._watch = shared_watch(
                program,
                "TorchModel",
                source.model or source.factory,
                nodes=node_count(program),
                computed_in=coarsest_type(program, self.torch_device),
                stops=joining.source != "declared",
            )

    def _measure(self, program: Program, inputs: list[InputSpec]) -> Measurement:
        if self._scaling is None:
            return measure_rows(program, inputs, self.torch_device, self._converted)
        inputs = [spec._replace(dtype=torch.float32) for spec in inputs]
        return measure_rows(program, inputs, self.torch_device, lambda tensor, _: self._scaled(tensor))

    def _scaled(self, tensor: torch.Tensor) -> torch.Tensor:
        assert self._scaling is not None
        return self._scaling(self._converted(tensor, None))

    def _known_inputs(self, shape: list[int] | None, program: Program) -> list[InputSpec] | None:
        """Return what the program takes: from its file, or from `row_shape`; None if neither says it."""
        if program.inputs is not None:
            return [
                spec._replace(dtype=self._dtype) if self._dtype is not None and spec.dtype.is_floating_point else spec
                for spec in program.inputs
            ]
        return None if shape is None else [InputSpec("data", self._example_dtype(), (-1, *shape))]

    def _inputs_for(self, structure: Structure) -> list[InputSpec] | None:
        """Return the inputs in the order of data of this structure; None if they are unknown or do not match."""
        if self._inputs is None or self._scaling is not None:
            return None
        if not isinstance(structure, tuple):
            return self._inputs if (1 if structure is None else structure) == len(self._inputs) else None
        by_name = {spec.name: spec for spec in self._inputs}
        return [by_name[name] for name in structure] if by_name.keys() == set(structure) else None

    def _takes(self, structure: Structure) -> bool:
        """Whether a program whose inputs have names may have data of this structure."""
        named = self._program is not None and self._program.inputs is not None and self._scaling is None
        return not named or self._inputs_for(structure) is not None

    def _dtypes_for(self, structure: Structure) -> list[torch.dtype | None]:
        count = 1 if structure is None else structure if isinstance(structure, int) else len(structure)
        inputs = self._inputs_for(structure)
        return [None] * count if inputs is None else [spec.dtype for spec in inputs]

    def _prepare(self, shape: list[int], sizes: list[int], program: Program) -> None:
        """Run the model on zeros before requests arrive, and capture its CUDA graphs."""
        warm_up_rows = self._warm_up_rows(sizes, program)
        example = torch.zeros((max(warm_up_rows), *shape), dtype=self._example_dtype(), device=self.torch_device)
        example = self._laid_out(example)
        with torch.no_grad():
            try:
                if self._scaling is not None:
                    self._scaling.check(example)
                for rows in warm_up_rows:
                    self._run_program(example[:rows])
            except torch.cuda.OutOfMemoryError:
                raise
            except Exception as error:
                raise hami.ConfigError(
                    f'TorchModel: the model failed on {show(example)}, the input that "row_shape" describes: '
                    f"{first_line(error)}"
                ) from error
            if sizes:
                self._graphs = Graphs(self._run_program, sizes, example, "TorchModel", program.call)

    def _example_dtype(self) -> torch.dtype:
        default = "float32" if self._scaling is not None else self.dtype or "float32"
        dtype = getattr(torch, self.row_dtype or default, None)
        if not isinstance(dtype, torch.dtype):
            raise hami.ConfigError(
                'TorchModel: "row_dtype" must be a dtype of torch, for example float32 or int64; '
                f'got "{self.row_dtype}"'
            )
        if self._scaling is not None and dtype != torch.float32:
            raise hami.ConfigError(
                'TorchModel: "row_dtype" must be float32 if the input is scaled ("input_mean", "input_std", '
                f'"input_scale"), got "{self.row_dtype}"; remove it'
            )
        return dtype

    def _warm_up_rows(self, sizes: list[int], program: Program) -> list[int]:
        """Return the numbers of rows to run before requests arrive.

        torch.compile compiles for the first number that it sees, then for any number, optimized for the second one
        that it sees. One row is always compiled separately.
        """
        if not program.compiles:
            return [max(sizes, default=self.rows or program.rows or 1)]
        return sorted(sizes, reverse=True)[:2] if sizes else [1, max(2, self.rows or 1)]

    def min(self) -> Any:
        return self._program.rows if self._program and self._joins else None

    def max(self) -> Any:
        if self._program and not self._joins:
            return 1
        if self._graphs is not None:  # those of the key `graphs`: this is read once
            return self._graphs.sizes[-1]
        return self._program.max_rows if self._program else None

    def forward(self, batch: Batch) -> None:
        super().forward(batch)
        if self._graphs is not None and not self._has_asked_native:
            self._has_asked_native = True  # first, so that a failure is not repeated for each batch
            try:
                with as_current(self.torch_device):
                    self._run_graphs_natively(self._graphs)
            except Exception as error:  # the batch has its results
                self.remark(f"TorchModel runs its CUDA graphs from Python: {first_line(error)}")

    def run(self, batch: Batch) -> None:
        assert self._program is not None, "forward after close"
        watch = self._watch
        if watch is None or watch.joins:
            self._run_together(batch)
        else:
            for item in batch:
                self._run_together([item])
        if watch is not None and watch.difference is not None and not self._has_remarked:
            self._has_remarked = True
            self.remark(f"TorchModel: {watch.finding}")

    def _run_graphs_natively(self, graphs: Graphs) -> None:
        """Let hami-cuda run the graphs, if the instance has a stream of hami-cuda."""
        watch, program = self._watch, self._program
        if self._stream is None or is_in_guard() or not self._keys.reads_only_data:
            return
        if watch is not None and not watch.joins:
            return
        if why := "the model changes its tensors" if program and program.has_state else _native.why_not(graphs):
            self.remark(f"TorchModel runs its CUDA graphs from Python: {why}")
            return
        every = EVERY if watch is not None else 0
        _native.attach(self, graphs, takes_rows=self._scaling is None, watch_every=every)
        if watch is not None:
            watch.when_stopped(self._run_graphs_from_python)

    def _run_graphs_from_python(self) -> None:
        with suppress(hami.PipeClosed):
            self.delegate(None)

    def _run_together(self, batch: Batch) -> None:
        found = self.parts(batch) if self._keys.reads_only_data else None
        if found is not None and self._can_run_as_one(batch, *found):
            parts, rows = found
            run_together(batch, BatchInput([parts], None, self._dtypes_for(None)), rows, self._call, self, self._watch)
        else:
            for items, requests in self.read_groups(batch, self._read_request, kind_of):
                run_group(items, requests, self._call, self, self._dtypes_for, self._watch)

    def _can_run_as_one(self, batch: Batch, parts: list[torch.Tensor], rows: list[int]) -> bool:
        if any(item.get("request_size", count) != count for item, count in zip(batch, rows, strict=True)):
            return False
        if self._scaling is not None:
            return self._scaling.fits(parts[0])
        inputs = self._inputs_for(None)
        if inputs is None:
            return self._takes(None)
        return len(inputs[0].shape) == parts[0].ndim and self._accepts(parts[0].dtype, inputs[0])

    def _accepts(self, dtype: torch.dtype, spec: InputSpec) -> bool:
        """Whether a dtype is converted: without loss, or to `dtype`, which says so."""
        if self._cast is False and self._dtype is None:
            return bool(dtype == spec.dtype)
        return casts_safely(dtype, spec.dtype) or (self._dtype is not None and bool(dtype.is_floating_point))

    def _read_request(self, item: Request) -> RequestInput:
        data = self.data_of(item)
        if self._inputs is not None and self._scaling is None:
            data = declared_data(data, self._inputs, self._cast, "TorchModel")
        if not self._takes(structure := structure_of(data)):
            names = [spec.name for spec in self._inputs or ()]
            given = f"a dict with the keys {list(structure)}" if isinstance(structure, tuple) else _counted(structure)
            raise hami.RequestError(f"TorchModel: the model has the inputs {names}, got {given}")
        request = read_request(item, data, self.check, self._inputs_for, self._accepts)
        if self._scaling is not None:
            if request.structure is not None:
                raise hami.RequestError(
                    'TorchModel: "input_mean", "input_std" and "input_scale" need "data" to be one tensor, '
                    f"got a {type(data).__name__}"
                )
            self._scaling.check(request.tensors[0])
        return request

    def data_of(self, item: Request) -> Any:
        return self._keys.data_of(item)

    def give(self, item: Request, value: Any) -> None:
        super().give(item, value)
        give_result(item, value)

    def _run_program(self, *args: torch.Tensor, **kwargs: torch.Tensor) -> Any:
        program = self._program
        assert program is not None
        if self._scaling is not None:
            args = (self._scaling(*args),)
        elif program.writes_input or not program.has_run:
            with torch.inference_mode(False):  # tensors made in inference mode have no version counter
                args, kwargs = tuple(map(torch.clone, args)), {name: part.clone() for name, part in kwargs.items()}
        tensors = [*args, *kwargs.values()]
        before = tensor_versions(tensors)
        try:
            with program.alone(self.torch_device):
                output = program.own_outputs(program.run(*args, **kwargs))
            program.has_run = True
            return output
        finally:
            if tensor_versions(tensors) != before:
                program.writes_input = True

    def _call(self, inputs: BatchInput, rows: int) -> Any:
        program = self._program
        assert program is not None
        if (graphs := self._graphs) is not None and inputs.structure is None and not inputs.is_watched:
            parts = inputs.columns[0]
            if graphs.fits(parts[0].shape[1:], self._input_dtype(parts[0]), rows):
                with program.alone(self.torch_device):
                    output = graphs.run(parts, rows)
                if self._watch is not None:
                    self._watch.skip(graphs.take_joined())
                if output is not None:  # the graphs were not replaced meanwhile
                    return output
        tensors = [
            self._converted(concatenated(parts), dtype)
            for parts, dtype in zip(inputs.columns, inputs.dtypes, strict=True)
        ]
        is_usual = len(tensors) == 1 and inputs.structure is None and not inputs.is_watched
        if self._auto_graphs is not None and is_usual and not program.has_state:
            self._auto_graphs.saw(tensors[0])
        if program.inputs is not None and self._inputs_for(inputs.structure) is not None:
            names = [spec.name for spec in program.inputs]
            if isinstance(inputs.structure, tuple):
                tensors = [tensors[inputs.structure.index(name)] for name in names]
            args, kwargs = program.arguments(tensors)
            return self._run_program(*args, **kwargs)
        if isinstance(inputs.structure, tuple):
            return self._run_program(**dict(zip(inputs.structure, tensors, strict=True)))
        return self._run_program(*tensors)

    def _input_dtype(self, tensor: torch.Tensor) -> torch.dtype:
        """Return the dtype to which an input is converted before it is scaled or passed to the program."""
        if self._scaling is not None:
            return torch.float32  # the scaling then converts to the dtype of the weights
        return self._dtype if self._dtype is not None and tensor.is_floating_point() else tensor.dtype

    def _converted(self, tensor: torch.Tensor, wanted: torch.dtype | None) -> torch.Tensor:
        dtype = self._input_dtype(tensor) if self._scaling is not None or wanted is None else wanted
        if tensor.dtype != dtype:
            tensor = tensor.to(dtype)
        return self._laid_out(tensor)

    def _laid_out(self, tensor: torch.Tensor) -> torch.Tensor:
        if self.channels_last and tensor.ndim == 4:
            return tensor.contiguous(memory_format=torch.channels_last)
        return tensor

    def close(self) -> None:
        try:
            if self._auto_graphs is not None:
                self._auto_graphs.close()
            if self._graphs is not None:
                self._graphs.close()
        finally:
            self._graphs = self._program = self._watch = self._auto_graphs = None


def _counted(structure: int | None) -> str:
    return "one tensor" if structure is None else f"a list of length {structure}"


def _positive_integers(values: list[Any], name: str) -> list[int]:
    try:
        numbers = [int(value) for value in values]
    except (TypeError, ValueError):
        numbers = [0]
    if any(number < 1 for number in numbers):
        raise hami.ConfigError(f'TorchModel: "{name}" must be a list of integers of at least 1, got {values!r}')
    return numbers
