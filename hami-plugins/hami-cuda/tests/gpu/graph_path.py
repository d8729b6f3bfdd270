"""Run batches with the CUDA graphs of another backend: `compute-sanitizer --tool memcheck python graph_path.py`.

The graphs copy their input. Several instances and callers use CapturedModel at once, with all numbers of rows.
"""

from __future__ import annotations

import ctypes
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import hami
import numpy as np
from hami_tensor import Device

from hami_cuda import captured
from hami_cuda.memory import InstanceStream

SIZES, COLUMNS = (1, 2, 4, 8), 256
DEVICE = Device("cuda:0")
driver = ctypes.CDLL("libcuda.so.1")


@hami.register
class Copies(hami.Backend):
    """Copies rows with CUDA graphs, one for each of SIZES."""

    thread = "serialized"
    max = SIZES[-1]

    def init(self, options: Any) -> None:
        self.stream = InstanceStream(options, DEVICE, "Copies")
        with self.stream:
            self.input = self.stream.empty("float32", (SIZES[-1], COLUMNS))
            assert driver.cuMemsetD8_v2(*map(ctypes.c_size_t, (self.input.address, 0, SIZES[-1] * COLUMNS * 4))) == 0
            self.outputs = {size: self.stream.empty("float32", (size, COLUMNS)) for size in SIZES}
        region = captured.Region(self.input.address, "float32", (SIZES[-1], COLUMNS), (COLUMNS, 1))
        self.captured = captured.CapturedModel(DEVICE, region, pads=True, takes_rows=True, owner="Copies")
        self.graphs = []
        for size, output in self.outputs.items():
            self.graphs.append(self.stream.capture(lambda handle, o=output, s=size: self._copy(handle, o.address, s)))
            with self.captured.using(self.stream.handle):
                region = captured.Region(output.address, "float32", (size, COLUMNS), (COLUMNS, 1))
                self.captured.add(self.graphs[-1]._handle, size, region)
        self.delegate(captured.BACKEND, model=self.captured.number)

    def _copy(self, stream: int, to: int, rows: int) -> None:
        arguments = to, self.input.address, rows * COLUMNS * 4, stream
        assert driver.cuMemcpyDtoDAsync_v2(*map(ctypes.c_size_t, arguments)) == 0

    def forward(self, batch: list[hami.Request]) -> None:
        raise hami.RequestError("a request was not run by its graphs")

    def close(self) -> None:
        self.captured.close()
        self.stream.close()


def main() -> None:
    config = {"backend": "S[GpuTensor,Copies,hami-cuda::CpuTensor]", "instance_num": 2}
    with hami.pipe(config) as pipe:

        def is_copied(first: int) -> bool:
            rows = [
                np.full((1 + row % 2, COLUMNS) if row % 3 else (COLUMNS,), first + row, np.float32)
                for row in range(1 + first % 6)
            ]
            requests = pipe([{"data": each} for each in rows])
            return all(np.array_equal(request["result"], each) for request, each in zip(requests, rows, strict=True))

        with ThreadPoolExecutor(4) as callers:
            assert all(callers.map(is_copied, range(64)))
        assert pipe.stats()["default"].counters["graph_runs"] > 0
    print("the graph path ran")


if __name__ == "__main__":
    main()
