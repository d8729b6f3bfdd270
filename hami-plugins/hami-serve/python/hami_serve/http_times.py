"""How long a connection waits for its client. Both doors have the same times over HTTP/1.1."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Times:
    """Times in seconds."""

    idle: float = 75.0  # for the first byte of a connection, and between its requests
    head: float = 30.0  # for the head of a request
    body: float = 60.0  # for the next part of a body
    rest: float = 10.0  # for the rest of an unwanted body
    rate_after: float = 20.0  # from which on a body must come with MIN_RATE bytes per second, on average
    write: float = 60.0  # for a client to take the next part of an answer
    last_request: float = 0.5  # for the next request of an idle connection when the server stops
    linger: float = 5.0  # for the end of a client whose connection is closing
    half_closed: float = 1.0  # for an answer to begin after the end of a client, which may have left
    idle_calls: float = 600.0  # for the next call of a connection of gRPC
