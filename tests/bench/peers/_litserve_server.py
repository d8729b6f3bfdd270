"""A LitServe server for `servers.py`: python _litserve_server.py DATA WORK PORT."""

from __future__ import annotations

import base64
import sys
from pathlib import Path
from typing import Any

import litserve
from _works import works

MAX_BATCH = 8
WAIT_S = 0.002  # queue delay


class API(litserve.LitAPI):  # type: ignore[misc]
    work = works(Path(sys.argv[1]))[sys.argv[2]]

    def setup(self, device: str) -> None:
        self.model = self.work.make_model()

    def decode_request(self, request: dict[str, str]) -> Any:
        return self.work.prepare(base64.b64decode(request["data"]))

    def batch(self, inputs: Any) -> list[Any]:
        return list(inputs)

    def unbatch(self, output: list[Any]) -> list[Any]:
        return output

    def predict(self, inputs: list[Any]) -> list[Any]:
        return self.model(inputs)

    def encode_response(self, output: Any) -> dict[str, Any]:
        return {"result": output.decode() if isinstance(output, bytes) else output}


if __name__ == "__main__":
    api = API(max_batch_size=MAX_BATCH, batch_timeout=WAIT_S)
    server = litserve.LitServer(api, accelerator="cpu", workers_per_device=API.work.instances, track_requests=False)
    server.run("127.0.0.1", int(sys.argv[3]), log_level="error", generate_client_file=False, num_api_servers=1)
