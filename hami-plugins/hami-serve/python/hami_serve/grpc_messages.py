"""The messages of open_inference.proto as classes, in a descriptor pool of their own.

A pool of its own, and no generated module: other packages of the same process, such as clients of Triton, define
messages with the same names in the default pool.
"""

from __future__ import annotations

from importlib.resources import files
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

SERVICE = "inference.GRPCInferenceService"
POOL = descriptor_pool.DescriptorPool()


def _load() -> dict[str, Any]:
    data = (files("hami_serve") / "open_inference.binpb").read_bytes()
    for file in descriptor_pb2.FileDescriptorSet.FromString(data).file:
        POOL.Add(file)
    found = POOL.FindFileByName("open_inference.proto").message_types_by_name
    return {name: message_factory.GetMessageClass(descriptor) for name, descriptor in found.items()}


_CLASSES = _load()


def message(name: str) -> Any:
    """Return the class of a message."""
    return _CLASSES[name]


def methods() -> Any:
    """Return the descriptors of the methods of the service."""
    return POOL.FindServiceByName(SERVICE).methods
