"""A model that returns a tensor in the memory of a device is a fault of the model, and the server goes on."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("hami_cuda", reason="returns such tensors")
HERE = Path(__file__).parent
OF_CUDA = HERE.parents[1] / "hami-cuda" / "tests"
MODEL = "S[GpuTensor,SyncTensor]"
# In a process of its own: the fake driver stays in it.
BEGIN = f"""
import sys
sys.path[:0] = {[str(HERE), str(OF_CUDA)]}
from native import fake_driver
if fake_driver() is None:
    print("this machine has an NVIDIA driver")
    sys.exit()
import importlib.util
spec = importlib.util.spec_from_file_location("of_serve", {str(HERE / "conftest.py")!r})
of_serve = importlib.util.module_from_spec(spec)
spec.loader.exec_module(of_serve)
"""
HTTP = """
import http.client
import json
server = of_serve.Running({"any": MODEL}, door=DOOR)
request = {"inputs": [{"name": "x", "datatype": "FP32", "shape": [2], "data": [1, 2]}]}
print(*server.post("/v2/models/any/infer", request), server.get("/v2/health/live")[0])
server.close()
"""
GRPC = """
import grpc
from hami_serve.grpc_messages import message
server = of_serve.RunningGrpc({"any": MODEL}, door=DOOR)
tensor = {"name": "x", "datatype": "FP32", "shape": [2], "contents": {"fp32_contents": [1, 2]}}
request = message("ModelInferRequest")(model_name="any", inputs=[tensor])
with grpc.insecure_channel(server.url) as channel:
    for _ in range(2):
        try:
            channel.unary_unary("/inference.GRPCInferenceService/ModelInfer")(request.SerializeToString(), timeout=60)
        except grpc.RpcError as error:
            print(error.code().name, error.details())
server.close()
"""


@pytest.mark.parametrize("door", ["native", "python"])
@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_a_result_in_the_memory_of_a_device_is_an_error(protocol, door):
    if protocol == "grpc":
        pytest.importorskip("hami_serve.grpc_messages", reason="needs hami-serve[grpc]", exc_type=ImportError)
    names = f"MODEL, DOOR = {MODEL!r}, {door!r}\n"
    program = names + BEGIN + (HTTP if protocol == "http" else GRPC)
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=300, env=environment)
    if "this machine has an NVIDIA driver" in done.stdout:
        pytest.skip("this machine has an NVIDIA driver, and the test needs the fake one")
    assert done.returncode == 0, done.stderr
    wanted = ["500 {'error': ", " 200"] if protocol == "http" else 2 * ["on cuda:0"]
    assert all(each in done.stdout for each in [*wanted, "on cuda:0"]), done.stdout
