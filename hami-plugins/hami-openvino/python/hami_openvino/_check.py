"""CheckModel: runs in Python before the native backend opens a model."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Annotated, Any

import hami
from hami_model_check.findings import recall, remember, stamp_of_package
from hami_model_check.graph import read_graph
from hami_model_check.isolation import load_in_child
from hami_model_check.onnx import OnnxLimits, read_onnx

from hami_openvino._plan import engine_name, plan_of, weights_of
from hami_openvino.differences import CHECKED_VERSION, Difference, differences_of, openvino_version

_MOST_REMARKS = 16  # a node keeps at most 32

# OpenVINO ends the process by a division by zero when it compiles one of these for an axis of length 0.
_RECURRENT = {"LSTM", "GRU", "RNN"}

_log = logging.getLogger("hami.openvino")


class CheckModel(OnnxLimits):
    """Checks an ONNX model: its size, what OpenVINO computes differently, and whether its rows are independent."""

    # Parameters of the native backend. The child process gets all of them; their types and defaults are declared there.
    model: Path
    device: str | None = None
    hint: str | None = None
    streams: int | None = None
    threads: int | None = None
    cache_dir: Path | None = None
    properties: list[str] = []  # noqa: RUF012
    precision: str | None = None
    batched: bool | None = None
    inputs: list[str] = []  # noqa: RUF012
    cast: str | None = None
    library: Path | None = None

    # OpenVINO needs 21 s to open a chain of 20,000 nodes, and four times as long for twice as many.
    max_nodes: Annotated[int, "ONNX: largest number of nodes after local functions are inlined"] = 20_000
    isolate_load: Annotated[bool, "load the model in a child process first, which must succeed"] = False
    accept_differences: Annotated[
        list[str], "ONNX: operators that may be computed differently from the specification; model: the file's version"
    ] = []  # noqa: RUF012

    def init(self, options: Any) -> None:
        if not self.model.is_file():
            return  # the native backend says what is wrong
        files = [self.model, self.model.with_suffix(".bin")]
        if _is_xml(self.model):
            if self.batched is None:
                weights = weights_of(self.model, (files[1].name,))
                options["openvino_plan"] = self._with_test(
                    options, [self.model, *weights], {"rows": "unknown", "why": ""}
                )
        else:
            model = read_onnx(self.model, backend="OpenvinoTensor", empty_inputs=True, **self.onnx_limits())
            files = [self.model, *(self.model.parent / name for name in model.external_files)]
            self._check_graph(options, [self.model, *weights_of(self.model, model.external_files)])
        if self.isolate_load:
            names = [name for name in CheckModel.__annotations__ if name != "isolate_load"]
            load_in_child(
                "hami-openvino::OpenvinoTensor",
                {**self.onnx_limits(), **{name: getattr(self, name) for name in names}},
                version_of_files=[_stamp(file) for file in files],
                init_event=options["init_event"],
                libraries=[str(self.library)] if self.library else [],
            )

    def _check_graph(self, options: Any, files: list[Path]) -> None:
        try:
            graph = read_graph(self.model)
        except ValueError as error:  # a file that changes while it is read
            raise hami.ConfigError(f'OpenvinoTensor: "{self.model}" is damaged: {error}') from None
        if any(node.op_type in _RECURRENT for node in graph.nodes()):
            read_onnx(self.model, backend="OpenvinoTensor", empty_inputs=False, **self.onnx_limits())
        version = openvino_version()
        if version < CHECKED_VERSION:
            numbers = (".".join(map(str, each)) for each in (version, CHECKED_VERSION))
            self.remark("the operators of OpenVINO {} were not checked; those of {} were".format(*numbers))
        differences = differences_of(graph, version)
        known = {"model", *(difference.operator for difference in differences)}
        accepted = set(self.accept_differences)
        refused = [each for each in differences if each.refused and each.operator not in accepted]
        if refused:
            raise hami.ConfigError(_refusal(self.model, refused))
        if options["instance"] == 0:
            for name in sorted(accepted - known):
                _log.warning(
                    'OpenvinoTensor: "%s" has no known difference of %s (accept_differences)', self.model, name
                )
            for difference in differences:
                level = logging.WARNING if difference.refused else logging.INFO
                _log.log(level, 'OpenvinoTensor: "%s": OpenVINO differs from ONNX: %s', self.model, difference)
        for difference in differences[:_MOST_REMARKS]:
            self.remark(f"OpenVINO differs from ONNX: {difference}")
        self.remark(f"OpenVINO computes float32 models in {self._precision()}")
        plan = plan_of(self.model, graph, batched=self.batched, files=files, limits=self.onnx_limits())
        if plan["rows"] == "unknown" and self.batched is None:
            plan = self._with_test(options, files, plan)
        if plan["rows"] == "mixes" and not self.batched:
            self.remark(f"OpenvinoTensor runs requests one by one: {plan['why']}")
        options["openvino_plan"] = plan

    def _with_test(self, options: Any, files: list[Path], plan: dict[str, Any]) -> dict[str, Any]:
        """Return the plan with what a test of the rows found in an earlier process; else keep what it finds now."""
        settings = [self.device, self.precision, sorted(self.properties), self.library and _stamp(self.library)]
        parts: dict[str, Any] = {"engine": f"{engine_name()} {stamp_of_package(__file__)}", "settings": settings}
        found = recall(files, **parts)
        if found is None:

            def keep(ready: hami.Event) -> None:
                if ready.exception() is None:
                    remember(files, dict(options.get("openvino_tested") or {}), **parts)

            options["init_event"].add_done_callback(keep)
        if not found:
            return plan
        if found.get("independent") is True:
            return {**plan, "rows": "independent", "why": ""}
        return {**plan, "rows": "mixes", "why": "; ".join(filter(None, [plan["why"], str(found.get("why"))]))}

    def _precision(self) -> str:
        """Return what the settings say about the arithmetic of float32 models."""
        properties = {name: value for name, _, value in (text.partition("=") for text in self.properties)}
        for name in ("INFERENCE_PRECISION_HINT", "EXECUTION_MODE_HINT"):
            if name in properties and (name == "INFERENCE_PRECISION_HINT" or self.precision is None):
                return f"what {name} = {properties[name]} says"
        if self.precision == "auto" or (self.precision is None and "NPU" in (self.device or "")):
            return "what it considers fastest on the device"
        return {"bf16": "bfloat16", "f16": "float16"}.get(self.precision or "", "float32")

    def forward(self, batch: list[Any]) -> None: ...  # never called


def _refusal(model: Path, refused: list[Difference]) -> str:
    more = "".join(f"\nalso: {difference}" for difference in refused[1:])
    operators = sorted({difference.operator for difference in refused})
    return (
        f'OpenvinoTensor: "{model}" would give other results than ONNX defines: {refused[0]}, or accept it with '
        f"accept_differences = {operators}{more}"
    )


def _is_xml(path: Path) -> bool:
    """Return whether a file is an OpenVINO IR, or empty. OpenVINO reads an ONNX model as such under any name."""
    with path.open("rb") as file:
        start = file.read(1024).lstrip(b"\xef\xbb\xbf \t\r\n")
    return path.suffix == ".xml" and start[:1] in (b"", b"<")


def _stamp(path: Path) -> tuple[str, int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return str(path.resolve()), status.st_mtime_ns, status.st_size
