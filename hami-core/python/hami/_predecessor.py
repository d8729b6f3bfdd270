"""What to write instead of names and keys of torchpipe and omniback that HAMi does not have.

`ci/from_torchpipe.py` writes the tables of howto/from-torchpipe.md from this module. Each text is also the hint of an
error.
"""

from __future__ import annotations

BACKENDS: dict[str, str] = {
    "AddInt": "write Add(key=1); unquoted numbers become ints",
    "AsU64Identity": "write Identity; a HAMi request can hold an int of 64 bits",
    "AsyncQueue": "write Queue(name)",
    "Backend": "write Pass; a class of your own derives from hami.Backend",
    "BackendMax": "write Identity, or a hami.Backend with max = N",
    "Benchmark": "measure in the program; pipe.stats() has the times of each node",
    "ContinuousBatching": "not planned: LLM scheduling belongs to an LLM engine; LoopCondition repeats requests",
    "CopyMakeBorderTensor": "write a hami.Backend with torch.nn.functional.pad; LetterBoxMat pads on the CPU",
    "CreateQueue": "write Queue(name, max=N)",
    "DI_v0": "write DI[A, B]",
    "DagProxy": "write Forward[node.NAME]",
    "DebugLogger": "set the environment variable HAMI_LOG=debug",
    "DynamicResizeTensor": "write a hami.Backend that reads the size from the request",
    "EmbeddingTensor": "write a hami.Backend with torch.nn.functional.embedding",
    "EventGuard": "remove it: a request with the key event is asynchronous in every pipe",
    "FIAppendTensor": "not planned: LLM paging belongs to an LLM engine",
    "FakeInstance": "write its item alone: an engine has one profile for all batch sizes from min to max",
    "HasKeyV0": "write HasKey(key)[A, B]",
    "Identities": "write Identity, which takes any number of requests",
    "IndexSelectTensor": "write a hami.Backend with torch.index_select",
    "InfoLogger": "set the environment variable HAMI_LOG=info",
    "Init": "remove it: the items of List are initialised in order",
    "Instances": "write InstancesRegister",
    "IoCV0": "write IoC[A, B; C]",
    "Launch": "write Forward[NAME]",
    "LogGPUTime": "write Log(message), or read the times of pipe.stats()",
    "LogTime": "write Log(message), or read the times of pipe.stats()",
    "Loop": "write Recv(name)[B]",
    "Node": "write Register",
    "NotHasKeyV0": "write NotHasKey(key)[A]",
    "ParserTest": "not planned: a test of the parser of omniback; hami check tests an expression",
    "Placeholder": "write Reflect, or Forward[NAME] for an instance",
    "Pow": "not planned: a test of omniback; write a hami.Backend",
    "PrintKeys": "write Log(message), or a hami.Backend that prints item.keys()",
    "PrintTensor": 'write a hami.Backend that prints item["data"]',
    "Profile": "remove it and call pipe.stats()",
    "PyStreamPool": "write StreamPool",
    "PySyncTensor": "write SyncTensor",
    "PyTensorrtInferTensor": "write TensorrtInferTensor",
    "QueueBackend": "write Queue(name)",
    "Random": "write a hami.Backend with child_count = (1, None) that chooses one of self.children",
    "ReadFile": "read the file in the program and pass its bytes as data",
    "Restart": "write LoopCondition or StateFul",
    "RestartEvent": "write LoopCondition or StateFul",
    "RuntimeError": "write Raise(message)",
    "S_v0": "write S[A, B]",
    "Send2Queue": "write Send(name)",
    "SequentialV0": "write S[A, B]",
    "SetTensorRequestSize": "remove it: set the key request_size in the request",
    "SharedInstancesState": "remove it: InstanceDispatcher shares this state itself",
    "SoftmaxArgMaxTensor": "write ArgMaxTensor: softmax does not change which element is the largest",
    "Source": "call pipe.map(requests) in the program",
    "SrcQueue": "write Recv(name)[B]",
    "TensorPage": "not planned: LLM paging belongs to an LLM engine",
    "ThreadPoolExecutor": "write Recv(name)[B] in several nodes, or call pipe.submit",
    "ThrowIfNoResult": "remove it: a request without result fails with hami.NoResult",
    "TimeStamp": "read the times of pipe.stats(), or write a hami.Backend that sets time.time()",
    "TorchStreamPool": "write StreamPool",
    "TraceLogger": "set the environment variable HAMI_LOG=debug",
    "Tuple": "write List",
    "cvtColorMat": "write CvtColorMat",
    "cvtColorTensor": "write CvtColorTensor",
    "uniformSample": "call pipe.map(requests) in the program",
}

KEYS: dict[str, str] = {
    "append_index_selector": "not planned: LLM paging belongs to an LLM engine",
    "device": "remove it, and write GpuTensor after Mat2Tensor",
    "device_id": 'write device = "cuda:N"',
    "fake_instance_num": "remove it: an engine has one profile for all batch sizes from min to max",
    "force_layer_norm_pattern_fp32": "remove it, and export the model with the type that each layer needs",
    "hardward_compatibility": 'write hardware_compatible = "ampere_plus"',
    "log_level": "remove it, and set the environment variable HAMI_LOG",
    "max_stream": "write instance_num: each instance of SyncTensor has a stream of its own",
    "max_workspace_size": 'write workspace with a unit; torchpipe counts MiB: 1024 is workspace = "1024MiB"',
    "model_type": "remove it: the suffix of the file under model selects the loader",
    "node_name": "remove it: the table of a node gives its name",
    "postprocessor": 'write post_processor = "EXPRESSION"',
    "pre_processor": 'write it before the engine: backend = "S[EXPRESSION, TensorrtTensor]"',
    "precision::fp16": "remove it, and export the model with the type that each layer needs",
    "precision::fp32": "remove it, and export the model with the type that each layer needs",
    "queue_max": "write Queue(name, max=N), or max_queue_size for the queue of a node",
}


def instead_of_key(key: str) -> str:
    """Return what to write instead of a key that nothing uses; empty if torchpipe has no such key."""
    return _hint(KEYS.get(key))


def instead_of_backend(name: str) -> str:
    """Return what to write instead of a backend that HAMi does not have; empty if torchpipe has none of that name."""
    return _hint(BACKENDS.get(name))


def _hint(text: str | None) -> str:
    return f"from torchpipe: {text}" if text else ""
