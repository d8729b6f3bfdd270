#!/usr/bin/env bash
# grpcio 1.85.3: in grpc.aio, `await context.abort(…)` keeps the request of the call until the garbage collector runs.
#
# abort raises an exception that the call keeps. Its traceback refers to the frame of the handler, and the frame to the
# request and to the context of the call: a cycle. Each rejected call thus holds its message, up to the maximum size, and
# the collector counts objects and not bytes, so a server that rejects large messages grows by many of them. A handler
# that sets the code and the details and returns, or raises another exception, holds nothing. `request = None` before the
# abort frees the message as well.
# Seen on 29 November 2026, x86-64, CPython 3.11. Fails if this changes.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/env"
"$work/env/bin/pip" install --quiet --disable-pip-version-check grpcio==1.85.3
cat >"$work/calls.py" <<'PY'
import asyncio
import gc
import weakref

import grpc
from grpc import aio

CALLS = 10
requests = []  # weak references to those of the calls


class Request:
    def __init__(self, data):
        self.data = data
        requests.append(weakref.ref(self))


async def abort(request, context):
    await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "rejected")


async def forget_and_abort(request, context):
    request = None
    await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "rejected")


async def set_code(request, context):
    context.set_code(grpc.StatusCode.INVALID_ARGUMENT)
    context.set_details("rejected")
    return b""


async def main():
    methods = {method.__name__: method for method in (abort, forget_and_abort, set_code)}
    server = aio.server()
    handlers = {
        name: grpc.unary_unary_rpc_method_handler(method, request_deserializer=Request, response_serializer=bytes)
        for name, method in methods.items()
    }
    server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler("calls", handlers)])
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    found = {}
    async with aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        for name in methods:
            requests.clear()
            gc.collect()
            gc.disable()
            for _ in range(CALLS):
                try:
                    await channel.unary_unary(f"/calls/{name}")(bytes(1000))
                except aio.AioRpcError as error:
                    assert error.code() is grpc.StatusCode.INVALID_ARGUMENT, error
            # Nothing of a call is kept longer than until the next one has ended, but for what a cycle keeps.
            found[name] = sum(request() is not None for request in requests[:-1])
            gc.enable()
    await server.stop(None)
    print(f"grpcio {grpc.__version__}; requests of {CALLS - 1} ended calls that are still there: {found}")
    assert found == {"abort": CALLS - 1, "forget_and_abort": 0, "set_code": 0}, found


asyncio.run(main())
PY
"$work/env/bin/python" "$work/calls.py"
