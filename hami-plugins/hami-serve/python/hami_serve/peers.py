"""The worker processes of a server ask each other for what each of them knows alone: its metrics and statistics."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import hami

ANSWER_S = 2.0  # a worker that needs longer is left out
MAX_ADDRESS = 107  # bytes of the path of a Unix socket


class Peers:
    """The workers of a server, by number. Each answers questions at a Unix socket in a folder of the server."""

    def __init__(self, folder: Path, count: int, number: int) -> None:
        self.count = count
        self._folder = folder
        self._number = number
        self._descriptor: int | None = None  # of the folder

    async def listen(self, answers: Mapping[str, Callable[[], Any]]) -> asyncio.AbstractServer:
        """Answer questions: each has a name, and a function that returns what JSON can represent."""

        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            try:
                question = (await asyncio.wait_for(reader.readline(), ANSWER_S)).decode().strip()
                if question in answers:  # else the other worker has ended
                    writer.write(json.dumps(await asyncio.to_thread(answers[question])).encode())
                    await writer.drain()
            except (ConnectionError, asyncio.TimeoutError):  # it has ended, or hangs
                pass
            except hami.PipeClosed:  # this worker has no models: it is left out
                pass
            finally:
                writer.close()

        server = await asyncio.start_unix_server(answer, self._path(self._number), start_serving=False)
        try:
            await server.start_serving()
        except BaseException:  # cancelled
            server.close()
            raise
        return server

    async def ask(self, question: str) -> dict[int, Any]:
        """Return the answers of all workers that run, this one included, by their numbers."""
        answers = await asyncio.gather(*(self._ask(number, question) for number in range(self.count)))
        return {number: answer for number, answer in enumerate(answers) if answer is not None}

    async def _ask(self, number: int, question: str) -> Any:
        try:
            return await asyncio.wait_for(self._exchange(number, question), ANSWER_S)
        except (OSError, ValueError, asyncio.TimeoutError):  # it has ended, or hangs
            return None

    async def _exchange(self, number: int, question: str) -> Any:
        reader, writer = await asyncio.open_unix_connection(self._path(number))
        try:
            writer.write(f"{question}\n".encode())
            return json.loads(await reader.read())
        finally:
            writer.close()

    def _path(self, number: int) -> str:
        path = str(self._folder / str(number))
        if len(os.fsencode(path)) <= MAX_ADDRESS:
            return path
        if self._descriptor is None:  # it stays open, like the worker's listening sockets
            self._descriptor = os.open(self._folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        return f"/proc/self/fd/{self._descriptor}/{number}"
