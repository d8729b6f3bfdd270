"""A mosec server for `servers.py`: python _mosec_server.py --port PORT; the environment has DATA and WORK."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import mosec
from _works import works

MAX_BATCH = 8
WAIT_MS = 2  # queue delay


class Infer(mosec.Worker):  # type: ignore[misc]
    work = works(Path(os.environ["DATA"]))[os.environ["WORK"]]

    def __init__(self) -> None:
        super().__init__()
        self.model = self.work.make_model()

    def deserialize(self, data: Any) -> bytes:
        return bytes(data)

    def serialize(self, data: Any) -> bytes:
        return data if isinstance(data, bytes) else json.dumps(data).encode()

    def forward(self, data: list[bytes]) -> list[Any]:
        return self.model([self.work.prepare(each) for each in data])


if __name__ == "__main__":
    server = mosec.Server()
    runtime = mosec.Runtime(Infer, num=Infer.work.instances, max_batch_size=MAX_BATCH, max_wait_time=WAIT_MS)
    server.register_runtime({"/predict": [runtime]})
    server.run()
