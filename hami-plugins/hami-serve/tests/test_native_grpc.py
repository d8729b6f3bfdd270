"""gRPC at the native door answers as grpcio does, and leaves to Python what it does not answer."""

from __future__ import annotations

import contextlib
import ctypes
import os
import random
import socket
import struct
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

grpc = pytest.importorskip("grpc", reason="needs hami-serve[grpc]")
pytest.importorskip("grpc_health", reason="needs hami-serve[grpc]")
pytest.importorskip("grpc_reflection", reason="needs hami-serve[grpc]")

from conftest import GATES, Gate, RunningGrpc, say  # noqa: E402
from http2_frames import END_HEADERS, END_STREAM, INITIAL_WINDOW, Kind, call, frame, headers, preface, reset  # noqa: E402

from hami_serve.grpc_messages import SERVICE, message  # noqa: E402
from hami_serve.http_times import Times  # noqa: E402
from hami_serve.native_grpc import functions  # noqa: E402

if functions() is None:
    pytest.skip("the native door was compiled without nghttp2", allow_module_level=True)

Request, Response = message("ModelInferRequest"), message("ModelInferResponse")
SPECS = {
    "inputs": [{"name": "x", "datatype": "FP32", "shape": [-1, 2]}],
    "outputs": [{"name": "y", "datatype": "FP32", "shape": [-1, 2]}],
}
TEXT = {"datatype": "BYTES", "shape": [1]}
BRAIN = {"datatype": "BF16", "shape": [-1, 2]}
MODELS = {
    "any": "Identity",
    "bytes": {"source": "Identity", "inputs": [{"name": "x", **TEXT}], "outputs": [{"name": "y", **TEXT}]},
    "brain": {"source": "Identity", "inputs": [{"name": "x", **BRAIN}], "outputs": [{"name": "y", **BRAIN}]},
    "numbers": {"source": "Identity", **SPECS},
    "fails": "TestFails",
    "python": "TestRaises",
    "slow": {"backend": "TestGate", "gate": "native grpc"},
}
INFER = f"/{SERVICE}/ModelInfer"
CORPUS = Path(__file__).parents[3] / "tests" / "fuzz" / "corpus" / "grpc"


@pytest.fixture(scope="module")
def doors() -> Iterator[tuple[RunningGrpc, RunningGrpc]]:
    GATES["native grpc"] = Gate()
    both = RunningGrpc(MODELS, door="python"), RunningGrpc(MODELS, door="native")
    yield both
    GATES["native grpc"].opened.set()
    for each in both:
        each.close()


def given(datatype: str, shape: list[int], contents: dict[str, object] | None = None, **rest: object):
    entry = {"name": "x", "datatype": datatype, "shape": shape}
    return Request(inputs=[entry | ({"contents": contents} if contents else {})], **{"model_name": "any", **rest})


def raw(datatype: str, shape: list[int], data: bytes, **rest: object):
    return given(datatype, shape, raw_input_contents=[data], **rest)


def answer(door: RunningGrpc, data: bytes, method: str = INFER, **options: object) -> tuple[str, object]:
    """Return the name of the status, and the bytes of the answer or the text of the error."""
    with grpc.insecure_channel(door.url, [("grpc.use_local_subchannel_pool", 1)]) as channel:
        try:
            return "OK", channel.unary_unary(method)(data, timeout=60, **options)
        except grpc.RpcError as error:
            return error.code().name, error.details()


FLOATS = struct.pack("<4f", 1.5, -0.0, 3.4e38, 1e-7)
TWO = [{"name": name, "datatype": "UINT8", "shape": [3]} for name in ("a", "b")]
REQUESTS = {
    "floats": given("FP32", [3, 2], {"fp32_contents": [1, 2.5, -3e-5, 1e16, 123456.0, 1e-4]}, id="é"),
    "doubles": given("FP64", [2], {"fp64_contents": [0.1, -0.0]}),
    "integers": given("INT8", [2], {"int_contents": [-128, 127]}),
    "words": given("INT16", [2], {"int_contents": [-32768, 32767]}),
    "long integers": given("INT64", [3], {"int64_contents": [-(2**63), 2**63 - 1, 300]}),
    "unsigned": given("UINT32", [2], {"uint_contents": [0, 2**32 - 1]}),
    "long unsigned": given("UINT64", [2], {"uint64_contents": [0, 2**64 - 1]}),
    "flags": given("BOOL", [3], {"bool_contents": [True, False, True]}),
    "out of range": given("INT8", [2], {"int_contents": [1, 128]}),
    "too few": given("INT8", [2], {"int_contents": [1]}),
    "another field": given("INT8", [1], {"fp32_contents": [1]}),
    "half precision without raw contents": given("FP16", [1], {"fp32_contents": [1]}),
    "text": given("BYTES", [2], {"bytes_contents": [b"a", b"\xc3\xa9"]}),
    "no contents": given("FP32", [1]),
    "no inputs": Request(model_name="any"),
    "raw": raw("FP32", [2, 2], FLOATS, id="b"),
    "raw half precision": raw("FP16", [8], FLOATS),
    "raw flags": raw("BOOL", [16], bytes([0, 1, 2, 255] * 4)),
    "raw text": raw("BYTES", [1], b"\1\0\0\0a"),
    "one text": given("BYTES", [1], {"bytes_contents": [b"a\xc3\xa9"]}),
    "an empty text": given("BYTES", [1], {"bytes_contents": [b""]}),
    "a text that is not UTF-8": given("BYTES", [1], {"bytes_contents": [b"\xff"]}),
    "declared bytes": given("BYTES", [1], {"bytes_contents": [b"\xff"]}, model_name="bytes"),
    "raw declared bytes": raw("BYTES", [1], b"\2\0\0\0\xff\xfe", model_name="bytes"),
    "raw text of a wrong size": raw("BYTES", [1], b"\2\0\0\0a"),
    "raw texts": raw("BYTES", [2], b"\1\0\0\0a\1\0\0\0b"),
    "raw brain floats": raw("BF16", [8], FLOATS),
    "typed brain floats": given("BF16", [1], {"fp32_contents": [1]}),
    "declared as brain floats": raw("FP32", [2, 2], FLOATS, model_name="brain"),
    "typed floats declared as brain floats": given("FP32", [1, 2], {"fp32_contents": [1.01, 2]}, model_name="brain"),
    "raw of a wrong size": raw("FP32", [3], FLOATS),
    "raw and typed": given("INT8", [1], {"int_contents": [1]}, raw_input_contents=[b"a"]),
    "two inputs": Request(model_name="any", inputs=TWO, raw_input_contents=[b"abc", b"def"]),
    "raw contents of one of two": Request(model_name="any", inputs=TWO, raw_input_contents=[b"abc"]),
    "the same input twice": Request(model_name="any", inputs=TWO[:1] * 2, raw_input_contents=[b"abc", b"def"]),
    "a name of the server": Request(
        model_name="any", inputs=[{"name": "priority", "datatype": "INT8", "shape": [1]}], raw_input_contents=[b"a"]
    ),
    "declared": raw("FP32", [2, 2], FLOATS, model_name="numbers"),
    "a version": raw("FP32", [2, 2], FLOATS, model_name="numbers", model_version="1"),
    "an unknown version": raw("FP32", [2, 2], FLOATS, model_name="numbers", model_version="2"),
    "a wrong shape": raw("FP32", [4], FLOATS, model_name="numbers"),
    "a wrong datatype": raw("FP64", [1, 2], FLOATS, model_name="numbers"),
    "a wanted output": raw("FP32", [2, 2], FLOATS, model_name="numbers", outputs=[{"name": "y"}]),
    "an unknown output": raw("FP32", [2, 2], FLOATS, model_name="numbers", outputs=[{"name": "z"}]),
    "a parameter": raw("INT8", [1], b"a", parameters={"timeout": {"int64_param": 5_000_000}}),
    **{
        name: raw("INT8", [1], b"a", parameters=parameters)
        for name, parameters in {
            "a priority": {"priority": {"int64_param": 2}, "timeout": {"int64_param": 0}},
            "a priority that is too large": {"priority": {"int64_param": 256}},
            "a negative timeout": {"timeout": {"int64_param": -1}},
            "the longest timeout": {"timeout": {"int64_param": 2**63 - 1}},
            "a timeout as text": {"timeout": {"string_param": "5000000"}},
            "a timeout without a value": {"timeout": {}},
            "an unsigned priority": {"priority": {"uint64_param": 3}},
            "a flag as priority": {"priority": {"bool_param": True}},
            "a parameter of the model": {"temperature": {"double_param": 1.5}},
        }.items()
    },
    "an unknown model": raw("INT8", [1], b"a", model_name="none"),
    "a model in Python": raw("INT8", [1], b"a", model_name="fails"),
    "a large tensor": raw("INT64", [1 << 16], bytes(range(256)) * (1 << 11)),
    "many elements": given("INT32", [1 << 15], {"int_contents": range(1 << 15)}),
}


@pytest.mark.parametrize("name", REQUESTS)
def test_both_doors_answer_alike(doors, name):
    data = REQUESTS[name].SerializeToString()
    python, native = (answer(door, data) for door in doors)
    if len(data) > 1 << 15 and python[0] == native[0] == "OK":  # Python writes typed contents in several pieces
        python, native = (Response.FromString(data) for _, data in (python, native))
    assert native == python


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xff",
        b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",  # a name of more than 2**63 bytes
        b"\x0a\x02\xff\xfe",  # a name that is not Unicode text
        REQUESTS["raw"].SerializeToString()[:-1],
        REQUESTS["raw"].SerializeToString() + b"\x3a\x05a",
        REQUESTS["raw"].SerializeToString() + b"\x78\x01",  # a field that the protocol does not have
        REQUESTS["floats"].SerializeToString() * 2,
        # Contents in a field of number 0, which protobuf does not have.
        b"\x0a\x03any\x2a\x12\x0a\x01x\x12\x04FP16\x1a\x01\x02\x2a\x04\x02\x02\x01\x02",
    ],
)
def test_both_doors_answer_alike_to_what_is_broken(doors, data):
    python, native = (answer(door, data) for door in doors)
    assert native == python


@pytest.mark.parametrize("method", ["ServerLive", "ServerReady", "ServerMetadata", "ModelMetadata", "Nothing"])
def test_other_methods_are_those_of_python(doors, method):
    data = message("ModelMetadataRequest")(name="numbers").SerializeToString() if method == "ModelMetadata" else b""
    python, native = (answer(door, data, f"/{SERVICE}/{method}") for door in doors)
    assert native == python


@pytest.mark.parametrize("compression", [grpc.Compression.Gzip, grpc.Compression.Deflate])
def test_a_compressed_message_is_read(doors, compression):
    data = REQUESTS["a large tensor"].SerializeToString()
    assert answer(doors[1], data, compression=compression) == answer(doors[0], data)


def test_a_compressed_message_that_expands_beyond_the_limit_is_rejected(doors):
    status, text = answer(doors[1], b"\0" * (2 << 20), compression=grpc.Compression.Gzip)
    assert (status, "the expanded body has more than the 1048576 bytes" in text) == ("RESOURCE_EXHAUSTED", True)


def test_requests_of_the_native_door_are_counted(doors):
    def count() -> int:
        found = answer(doors[1], b"\x0a\x07numbers", f"/{SERVICE}/ModelStatistics")[1]
        (stats,) = message("ModelStatisticsResponse").FromString(found).model_stats
        return stats.inference_stats.success.count

    before = count()
    for _ in range(3):
        answer(doors[1], REQUESTS["declared"].SerializeToString())
    assert count() == before + 3


def test_clients_beside_each_other_get_their_own_answers(doors):
    with grpc.insecure_channel(doors[1].url) as channel:
        infer = channel.unary_unary(INFER, None, Response.FromString)
        sent = {number: struct.pack("<4i", *[number] * 4) for number in range(200)}
        calls = {
            number: infer.future(raw("INT32", [4], data, id=str(number)).SerializeToString(), timeout=60)
            for number, data in sent.items()
        }
        for number, each in calls.items():
            found = each.result()
            assert (found.id, found.raw_output_contents[0]) == (str(number), sent[number])


@pytest.mark.parametrize("small_memory", [False, True], ids=["alone", "beside a call that holds the memory"])
def test_long_typed_contents_are_read_and_written_by_native_code(monkeypatch, small_memory):
    count = (1 << 18) + 1  # of int64, more than the elements of an answer and the bytes of a request that are short
    values = range(1 << 40, (1 << 40) + count)
    gate = GATES["long"] = Gate()
    models = {"any": "Identity", "slow": {"backend": "TestGate", "gate": "long"}}
    door = RunningGrpc(models, door="native", max_body=8 << 20, max_open=(8 << 20) if small_memory else 1)
    try:
        with contextlib.ExitStack() as held:
            if small_memory:
                channel = held.enter_context(grpc.insecure_channel(door.url, [("grpc.use_local_subchannel_pool", 1)]))
                large = raw("INT8", [1 << 20], bytes(1 << 20), model_name="slow").SerializeToString()
                held.callback(gate.opened.set)
                waits = channel.unary_unary(INFER).future(large)
                assert gate.begun.acquire(timeout=60)
            started: list[object] = []
            start = type(door._server)._start
            monkeypatch.setattr(type(door._server), "_start", lambda *each: (started.append(each), start(*each))[1])
            status, data = answer(door, given("INT64", [count], {"int64_contents": values}).SerializeToString())
            if small_memory:
                assert (status, bool(started)) == ("RESOURCE_EXHAUSTED", True)
                assert "the open requests of this server have" in data
                gate.opened.set()
                waits.result(60)
            else:
                assert (status, started) == ("OK", [])
                assert [*Response.FromString(data).outputs[0].contents.int64_contents] == [*values]
        while door.left_open():
            pass
    finally:
        gate.opened.set()
        door.close()


def test_a_stream_with_an_answer_for_which_there_is_no_memory_ends_in_python_too(monkeypatch):
    door = RunningGrpc({"any": "Identity"}, door="native")
    try:
        server = door._server

        def write(number: int, data: bytes) -> None:
            server._native.write(server._grpc, number, data, 2**64 - 1)  # bytes, which no string can have

        monkeypatch.setattr(server, "write", write)
        sent = given("FP32", [1], {"fp32_contents": [1]}).SerializeToString()
        with grpc.insecure_channel(door.url) as channel:
            stream = channel.stream_stream(f"/{SERVICE}/ModelStreamInfer")(iter([sent]), timeout=60)
            with pytest.raises(grpc.RpcError) as error:
                next(stream)
            assert error.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
            while server._calls:
                pass
    finally:
        door.close()


def test_a_deadline_ends_a_call_in_python(doors):
    with grpc.insecure_channel(doors[1].url) as channel:
        infer = channel.unary_unary(INFER)
        slow = raw("INT8", [1], b"a", model_name="slow").SerializeToString()
        for seconds in (0.3, 3, 30):  # on a busy machine, the deadline may pass before the model has the request
            assert infer.future(slow, timeout=seconds).code() is grpc.StatusCode.DEADLINE_EXCEEDED
            if GATES["native grpc"].begun.acquire(blocking=False):
                break
        assert GATES["native grpc"].cancelled.wait(60)


class RawClient:
    """Sends frames, and reads those that come."""

    def __init__(self, door: RunningGrpc, window: int = (1 << 16) - 1, received: int | None = None) -> None:
        """Connect. `window`: bytes of answers that it takes. `received`: those that the kernel holds for it."""
        self.socket = socket.socket()
        self.socket.settimeout(60)
        if received is not None:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, received)
        self.socket.connect(("127.0.0.1", door.port))
        self.socket.sendall(preface(window))
        self._stream = self.socket.makefile("rb")

    def __enter__(self) -> RawClient:
        return self

    def __exit__(self, *_: object) -> None:
        self._stream.close()
        self.socket.close()

    def next(self, *kinds: Kind) -> tuple[int, int, bytes]:
        """Return the flags, the stream and the content of the next frame of these kinds."""
        while True:
            head = self._stream.read(9)
            assert len(head) == 9, "the server has ended the connection"
            data = self._stream.read(int.from_bytes(head[:3], "big"))
            if head[3] in kinds:
                return head[4], int.from_bytes(head[5:], "big"), data

    def end(self) -> bytes:
        return self._stream.read()


def test_a_message_may_come_in_any_pieces(doors):
    whole = call("ModelInfer", REQUESTS["raw"].SerializeToString(), 1)
    with RawClient(doors[1]) as client:
        for at in range(len(whole)):
            client.socket.sendall(whole[at : at + 1])
        _, _, data = client.next(Kind.DATA)
    assert data[5:] == answer(doors[0], REQUESTS["raw"].SerializeToString())[1]


def test_many_pings_do_not_end_a_connection(doors):
    with RawClient(doors[1]) as client:
        for _ in range(200):
            client.socket.sendall(frame(Kind.PING, 0, 0, b"12345678"))
            assert client.next(Kind.PING) == (1, 0, b"12345678")


def test_what_is_not_http2_ends_its_connection(doors):
    with socket.create_connection(("127.0.0.1", doors[1].port), timeout=60) as client:
        client.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        while client.recv(1 << 16):
            pass


@pytest.mark.parametrize("size", [0xFFFFFFFF, (1 << 20) + 1])
def test_a_message_larger_than_the_limit_is_rejected_before_it_comes(doors, size):
    head = call("ModelInfer", b"", 1)[:-14]  # without the frame of its message
    with RawClient(doors[1]) as client:
        client.socket.sendall(head + frame(Kind.DATA, 0, 1, b"\0" + struct.pack(">I", size)))
        flags, _, _ = client.next(Kind.HEADERS)
        assert flags & (1 | END_HEADERS) == 1 | END_HEADERS  # its status is all that comes
        assert client.next(Kind.RST_STREAM)[2] == b"\0\0\0\0"


def test_a_client_that_takes_no_answers_does_not_stop_others(doors):
    with RawClient(doors[1], window=0) as client:
        client.socket.sendall(call("ModelInfer", REQUESTS["raw"].SerializeToString(), 1))
        client.next(Kind.HEADERS)
        assert answer(doors[1], REQUESTS["raw"].SerializeToString())[0] == "OK"


def broken(source: random.Random) -> bytes:
    """Return calls, some of whose bytes, frames or ends are wrong."""
    messages = [REQUESTS[name].SerializeToString() for name in ("raw", "floats", "a parameter", "a model in Python")]
    methods = ("ModelInfer", "ModelStreamInfer", "ServerLive", "Nothing")
    frames = [preface(source.choice((0, 9, 1 << 16)))]
    for number in range(source.randrange(1, 6)):
        stream = 2 * number + 1
        frames.append(call(source.choice(methods), source.choice(messages), stream))
        if source.random() < 0.3:
            kind = source.choice((Kind.RST_STREAM, Kind.PING, Kind.SETTINGS, Kind.DATA, Kind.HEADERS))
            content = source.randbytes(source.choice((0, 4, 6, 8, 300)))
            frames.append(frame(kind, source.randrange(256), stream, content))
    data = bytearray(b"".join(frames))
    for _ in range(source.randrange(4)):
        data[source.randrange(24, len(data))] = source.randrange(256)
    return bytes(data[: source.randrange(1, len(data))] if source.random() < 0.3 else data)


def test_broken_frames_end_at_most_their_connection_and_leave_nothing_behind(doors):
    source = random.Random(1)
    for _ in range(150):
        with socket.create_connection(("127.0.0.1", doors[1].port), timeout=60) as client:
            client.sendall(broken(source))
            if source.random() < 0.5:
                reset(client)
            elif source.random() < 0.5:
                client.recv(1 << 16)
    data = REQUESTS["raw"].SerializeToString()
    assert answer(doors[1], data) == answer(doors[0], data)
    for _ in range(600):
        if not doors[1].left_open():
            return
        threading.Event().wait(0.1)
    raise AssertionError(f"connections and bytes are left: {doors[1].left_open()}")


@pytest.mark.skipif(not CORPUS.is_dir(), reason="the corpus is part of the repository only")
def test_every_input_of_the_fuzz_target_ends_at_most_its_connection(doors):
    inputs = sorted(CORPUS.iterdir())
    assert len(inputs) > 50
    for path in inputs:
        data = path.read_bytes()
        frames = preface() + data[1:] if data[0] % 2 else call("ModelInfer", data[1:], 1)
        with socket.create_connection(("127.0.0.1", doors[1].port), timeout=60) as client, contextlib.suppress(OSError):
            client.sendall(frames)  # the server may have ended the connection
            client.shutdown(socket.SHUT_WR)
            while client.recv(1 << 16):
                pass
    data = REQUESTS["raw"].SerializeToString()
    assert answer(doors[1], data) == answer(doors[0], data)


def test_idle_connections_end_and_calls_that_run_are_answered_when_the_server_stops():
    gate = GATES["native grpc"] = Gate()
    door = RunningGrpc(MODELS, door="native")
    with RawClient(door) as idle, grpc.insecure_channel(door.url) as channel:
        slow = channel.unary_unary(INFER).future(
            raw("INT8", [1], b"a", model_name="slow").SerializeToString(), timeout=60
        )
        assert gate.begun.acquire(timeout=60)
        closing = threading.Thread(target=door.close)
        closing.start()
        ping = next(data for flags, _, data in iter(lambda: idle.next(Kind.PING), None) if not flags & 1)
        idle.socket.sendall(frame(Kind.PING, 1, 0, ping))
        idle.end()  # the end, and not a reset
        gate.opened.set()
        assert slow.code() is grpc.StatusCode.OK
        closing.join(60)


def test_a_client_that_connects_while_the_server_stops_learns_that():
    door = RunningGrpc(MODELS, door="native")
    try:
        door.native.drain()
        with RawClient(door) as client:
            client.next(Kind.GOAWAY)
    finally:
        door.close()


@pytest.mark.parametrize("limit", ["body", "rate_after"])
def test_a_message_that_does_not_come_holds_no_memory(limit):
    door = RunningGrpc(MODELS, door="native", times=Times(**{limit: 0.01}))
    head = call("ModelInfer", b"", 1)[:-14]  # without the frame of its message
    try:
        with RawClient(door) as client:
            client.socket.sendall(head + frame(Kind.DATA, 0, 1, b"\0" + struct.pack(">I", 1 << 20) + b"a"))
            flags, _, _ = client.next(Kind.HEADERS)
            assert flags & (1 | END_HEADERS) == 1 | END_HEADERS
            assert door.left_open()[1:] == [0, 0]
    finally:
        door.close()


def test_a_message_that_does_not_come_to_grpcio_holds_no_memory(monkeypatch):
    monkeypatch.setattr("hami_serve.grpc_server.MESSAGE_S", 0.01)
    monkeypatch.setattr("hami_serve.grpc_server.MESSAGE_RATE", 1 << 40)
    door = RunningGrpc(MODELS, door="python")
    try:
        with RawClient(door) as client:
            client.socket.sendall(call("ModelInfer", b"", 1)[:-14])
            flags, _, _ = client.next(Kind.HEADERS)
            assert flags & (1 | END_HEADERS) == 1 | END_HEADERS  # its status is all that comes
            while door.serving.budget.used:
                assert answer(door, b"", f"/{SERVICE}/ServerLive")[0] == "OK"
    finally:
        door.close()


def test_an_idle_connection_ends_and_the_next_call_connects_again():
    door = RunningGrpc(MODELS, door="native", times=Times(idle_calls=0.01))
    data = REQUESTS["raw"].SerializeToString()
    try:
        with RawClient(door) as idle, grpc.insecure_channel(door.url) as channel:
            client = channel.unary_unary(INFER)
            assert client(data, timeout=60) == client(data, timeout=60)
            ping = next(data for flags, _, data in iter(lambda: idle.next(Kind.PING), None) if not flags & 1)
            idle.socket.sendall(frame(Kind.PING, 1, 0, ping))
            idle.end()  # the end, and not a reset
            assert client(data, timeout=60)
    finally:
        door.close()


def test_a_client_that_takes_no_answers_of_a_stream_loses_its_call():
    """Else its model would wait for it without end."""
    door = RunningGrpc(MODELS, door="native", times=Times(write=0.01))
    message = raw("INT8", [1], b"a").SerializeToString()
    frames = bytearray(call("ModelStreamInfer", message, 1))
    frames[-len(message) - 5 - 5] &= ~END_STREAM  # it goes on
    try:
        with RawClient(door, window=0) as client:
            client.socket.sendall(frames)
            assert client.next(Kind.RST_STREAM)[1:] == (1, struct.pack(">I", 8))  # CANCEL
    finally:
        door.close()


@pytest.mark.parametrize("model", ["any", "say"])
def test_an_answer_larger_than_messages_can_be_is_an_error(model, monkeypatch):
    """The limit of gRPC is 4 GiB; the length of a larger message would mean a smaller one."""
    for module in ("native_grpc", "grpc_server"):
        monkeypatch.setattr(f"hami_serve.{module}.MAX_ANSWER", 1000)
    counted: Counter[str] = Counter()
    monkeypatch.setattr(
        "hami_serve.metrics.answers.count",
        lambda protocol, code, times=1: counted.update({f"{protocol} {code}": times}),
    )
    door = RunningGrpc({"any": "Identity", "say": say("hello" * 200)}, door="native")
    try:
        status, text = answer(door, raw("INT8", [1000], bytes(1000), model_name=model).SerializeToString())
        assert status == "RESOURCE_EXHAUSTED"
        assert "a message of gRPC has at most 1000, ask for fewer outputs or rows" in text
        assert answer(door, raw("INT8", [10], bytes(10)).SerializeToString())[0] == "OK"
        probes = 0
        while door.left_open():
            assert answer(door, b"", f"/{SERVICE}/ServerLive")[0] == "OK"
            probes += 1
    finally:
        door.close()
    assert counted == {"gRPC RESOURCE_EXHAUSTED": 1, "gRPC OK": 1 + probes}


def test_an_event_that_cannot_be_handled_fails_its_call_alone(monkeypatch):
    """Those behind it are not announced again."""
    door = RunningGrpc(MODELS, door="native")
    handle, failed = door._server._handle, []

    def fails_once(*event: object) -> None:
        if not failed:
            failed.append(event)
            raise RuntimeError("this event")
        handle(*event)

    monkeypatch.setattr(door._server, "_handle", fails_once)
    try:
        with grpc.insecure_channel(door.url) as channel:
            live = channel.unary_unary(f"/{SERVICE}/ServerLive")
            calls = [live.future(b"", timeout=60) for _ in range(20)]
            codes = [each.code() for each in calls]
        assert codes.count(grpc.StatusCode.INTERNAL) == 1
        assert codes.count(grpc.StatusCode.OK) == 19
    finally:
        door.close()


@pytest.mark.parametrize("trailers", [False, True])
def test_headers_that_mean_far_more_than_their_bytes_end_their_call(doors, trailers):
    """Each of the last bytes is a header of 4 KB, and reading them all would take the server a long time."""
    long = b"\x40\1a\x7f" + bytes([4000 - 127 & 127 | 128, 4000 - 127 >> 7]) + b"v" * 4000  # with an index from now on
    head = call("ModelInfer", b"", 1)[9:-14]
    with RawClient(doors[1]) as client:
        if trailers:
            client.socket.sendall(headers(1, 0, head) + headers(1, END_STREAM, long + b"\xbe" * 50_000))
        else:
            client.socket.sendall(headers(1, END_STREAM, head + long + b"\xbe" * 50_000))
        assert client.next(Kind.RST_STREAM)[1:] == (1, struct.pack(">I", 2))  # INTERNAL_ERROR
        client.socket.sendall(frame(Kind.PING, 0, 0, b"12345678"))
        assert client.next(Kind.PING) == (1, 0, b"12345678")


def test_a_wrong_timeout_is_rejected(doors):
    data = REQUESTS["raw"].SerializeToString()
    with RawClient(doors[1]) as client:
        for number, given in enumerate(("S", "1", "123456789S", "9" * 40 + "S", "-1S", "1x", "5S")):
            client.socket.sendall(call("ModelInfer", data, 2 * number + 1, grpc_timeout=given))
            flags, _, _ = client.next(Kind.HEADERS)
            assert bool(flags & 1) is (given != "5S")  # its status is all that comes


class _Allocated(ctypes.Structure):
    """What mallinfo2 of the GNU C library returns."""

    _fields_ = [("sizes", ctypes.c_size_t * 10)]


@pytest.mark.skipif("san" in os.environ.get("LD_PRELOAD", ""), reason="a sanitizer has another allocator")
def test_answers_that_a_slow_client_has_taken_leave_no_memory_behind():
    """Also while there are more of them than its socket takes."""
    mallinfo = getattr(ctypes.CDLL(None), "mallinfo2", None)
    if mallinfo is None:
        pytest.skip("this C library has no mallinfo2")
    mallinfo.restype = _Allocated
    count, size = 64, 1 << 18
    door = RunningGrpc({"any": "Identity"}, door="native")
    door.listening.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 16)  # of its connections, too

    def allocated() -> int:
        sizes = mallinfo().sizes
        return sizes[4] + sizes[7]  # hblkhd, uordblks

    try:
        with RawClient(door, window=0, received=1 << 15) as client:
            client.socket.sendall(frame(Kind.WINDOW_UPDATE, 0, 0, struct.pack(">I", (1 << 31) - (1 << 16))))
            data = raw("UINT8", [size], bytes(size)).SerializeToString()
            for number in range(count):
                client.socket.sendall(call("ModelInfer", data, 2 * number + 1))
            for _ in range(count):
                client.next(Kind.HEADERS)  # and none of the answers, which all wait
            before = allocated()
            client.socket.sendall(frame(Kind.SETTINGS, 0, 0, struct.pack(">HI", INITIAL_WINDOW, (1 << 31) - 1)))
            left = (count - 4) * size
            while left > 0:
                left -= len(client.socket.recv(1 << 14))
            assert before - allocated() > count * size // 2
    finally:
        door.close()
