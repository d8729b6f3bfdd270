"""CheckModel: runs in Python before the native backend opens a model."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from hami_model_check.isolation import load_in_child
from hami_model_check.onnx import OnnxLimits, read_onnx


class CheckModel(OnnxLimits):
    """Checks the graph of an ONNX model, and loads a model in a child process first if `isolate_load` is true."""

    # Parameters of the native backend. The child process gets all of them; their types and defaults are declared there.
    model: Path
    device: str | None = None
    hint: str | None = None
    streams: int | None = None
    threads: int | None = None
    cache_dir: Path | None = None
    properties: list[str] = []  # noqa: RUF012
    batched: bool | None = None
    library: Path | None = None

    # OpenVINO needs 21 s to open a chain of 20,000 nodes, and four times as long for twice as many.
    max_nodes: Annotated[int, "ONNX: largest number of nodes after local functions are inlined"] = 20_000
    isolate_load: Annotated[bool, "load the model in a child process first, which must succeed"] = False

    def init(self, options: Any) -> None:
        if not self.model.is_file():
            return  # the native backend says what is wrong
        files = [self.model, self.model.with_suffix(".bin")]
        if not _is_xml(self.model):
            model = read_onnx(self.model, backend="OpenvinoTensor", **self.onnx_limits())
            files = [self.model, *(self.model.parent / name for name in model.external_files)]
        if self.isolate_load:
            names = [name for name in CheckModel.__annotations__ if name != "isolate_load"]
            load_in_child(
                "hami-openvino::OpenvinoTensor",
                {**self.onnx_limits(), **{name: getattr(self, name) for name in names}},
                version_of_files=[_stamp(file) for file in files],
                init_event=options["init_event"],
                libraries=[str(self.library)] if self.library else [],
            )

    def forward(self, batch: list[Any]) -> None: ...  # never called


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
