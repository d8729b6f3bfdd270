"""A remote model over HTTP, with tensors as bytes. aiohttp closes the connection of a task that is cancelled."""

from __future__ import annotations

import json
import ssl
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

import aiohttp

from hami_serve.datatypes import Array, bytes_of_array
from hami_serve.errors import BadRequest, RemoteFailed, short
from hami_serve.http_tensors import HEADER_LENGTH, header_length, list_of, tensors_of
from hami_serve.model import TensorSpec
from hami_serve.remote.call import MAX_ANSWER, RemoteCall, ReplicaFailed, answer_checked, error_of, specs_of


class HttpTransport:
    """One replica over HTTP."""

    def __init__(
        self, url: str, model: str, version: str, *, connect_timeout: float, token: str | None, ca: str | None
    ) -> None:
        self._path = f"{url.rstrip('/')}/v2/models/{quote(model, safe='')}"
        if version:
            self._path += f"/versions/{quote(version, safe='')}"
        self._connect_timeout = connect_timeout
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._ssl = ssl.create_default_context(cadata=ca)  # by default the authorities of the system
        self._made: aiohttp.ClientSession | None = None

    def _session(self) -> aiohttp.ClientSession:
        if self._made is None:  # in the loop that uses it
            self._made = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0, ssl=self._ssl),
                timeout=aiohttp.ClientTimeout(total=None, connect=self._connect_timeout),
                headers={**self._headers, "Accept-Encoding": "identity"},  # an answer must not become larger
                auto_decompress=False,
            )
        return self._made

    async def inputs(self) -> tuple[TensorSpec, ...]:
        head, _ = await self._send("GET", self._path)
        return specs_of(head.get("inputs") or ())

    async def infer(self, call: RemoteCall) -> dict[str, Array]:
        entries, tails = [], []
        for tensor in call.inputs:
            data = bytes_of_array(tensor.datatype, tensor.array)
            size = {"binary_data_size": len(data)}
            shape = list(tensor.array.shape)
            entries.append({"name": tensor.name, "datatype": tensor.datatype, "shape": shape, "parameters": size})
            tails.append(data)
        parameters = {**call.parameters, "binary_data_output": True}
        if (left := call.seconds_left()) is not None:
            parameters["timeout"] = int(left * 1e6)
        head = json.dumps({"parameters": parameters, "inputs": entries}, separators=(",", ":")).encode()
        headers = {HEADER_LENGTH: str(len(head)), "Content-Type": "application/octet-stream"}
        answer, tail = await self._send("POST", f"{self._path}/infer", b"".join([head, *tails]), headers)
        with answer_checked():
            return tensors_of(list_of(answer, "outputs"), tail, "output")

    async def _send(
        self, method: str, url: str, body: bytes | None = None, headers: Mapping[str, str] | None = None
    ) -> tuple[dict[str, Any], memoryview]:
        """Return the JSON of the answer, and the bytes after it."""
        try:
            async with self._session().request(method, url, data=body, headers=headers, allow_redirects=False) as got:
                content = await _content(got)
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
            raise ReplicaFailed(_reason(error), may_have_run=False) from error
        except aiohttp.ClientError as error:
            raise ReplicaFailed(_reason(error), may_have_run=True) from error
        if got.status != 200:
            raise error_of(got.status, _error_text(content))
        try:
            length = header_length(got.headers.get(HEADER_LENGTH, str(len(content))).encode(), len(content))
            head = json.loads(content[:length])
        except (BadRequest, ValueError, RecursionError):
            raise RemoteFailed(f"the remote server sent no JSON: {short(content[:80])}") from None
        if not isinstance(head, dict):
            raise RemoteFailed(f"the remote server sent no JSON object: {short(head)}")
        return head, memoryview(content)[length:]

    async def close(self) -> None:
        if self._made is not None:
            await self._made.close()


async def _content(got: aiohttp.ClientResponse) -> bytes:
    """Return the body of an answer, as long as it is not larger than any answer should be."""
    found = bytearray()
    if got.content_length is None or got.content_length <= MAX_ANSWER:
        async for part in got.content.iter_any():
            found += part
            if len(found) > MAX_ANSWER:
                break
        else:
            return bytes(found)
    raise RemoteFailed(f"the answer of the remote server has more than {MAX_ANSWER} bytes, which is the limit")


def _error_text(content: bytes) -> str:
    try:
        text = json.loads(content)["error"]
    except (ValueError, RecursionError, KeyError, TypeError, IndexError):
        return short(content.decode("utf-8", "replace").strip())
    return text if isinstance(text, str) else short(text)


def _reason(error: aiohttp.ClientError) -> str:
    """Return the reason in our words: aiohttp's own text says "400", a status that no server has sent."""
    match error:
        case aiohttp.ClientResponseError():
            found = short(error.message.partition("\n")[0].partition(": b")[0].rstrip(":"))
            return f"the answer is not HTTP/1.1 ({found}); check that the url is that of the HTTP port of the server"
        case aiohttp.ClientPayloadError():
            return "the connection ended in the middle of the answer; the log of that server may say why"
        case aiohttp.ServerDisconnectedError():
            return "the connection ended without an answer; the log of that server may say why"
    return str(getattr(error, "os_error", None) or error) or type(error).__name__
