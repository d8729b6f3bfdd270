"""Pages of other sites that may use the server (CORS)."""

from __future__ import annotations

import re
from collections.abc import Collection

import hami
from starlette.datastructures import Headers
from starlette.middleware.cors import CORSMiddleware
from starlette.responses import Response
from starlette.types import ASGIApp

from hami_serve.metrics import answers

ANY = "*"
ORIGIN = re.compile(r"https?://[A-Za-z0-9.\[\]:_-]+")
READABLE = ("Inference-Header-Content-Length", "Retry-After", "X-Request-Id")  # headers of answers
AGAIN_S = 600  # until a browser asks again whether it may send a request


def checked_origins(given: Collection[str]) -> frozenset[str]:
    """Return origins as browsers write them.

    Raises:
        ConfigError: One is neither `*` nor an origin.
    """
    for each in given:
        if each != ANY and not ORIGIN.fullmatch(each):
            raise hami.ConfigError(
                f'--cors takes an origin such as "https://app.example.org", without a path, or "*"; got "{each}"'
            )
    return frozenset(each.lower() for each in given)


class Cors(CORSMiddleware):
    """Lets browsers send requests for pages of these origins, and lets the pages read all answers, also errors.

    Credentials of the browser, such as cookies, are never asked for: a page sends a token in Authorization by itself.
    """

    def __init__(self, app: ASGIApp, origins: Collection[str]) -> None:
        super().__init__(
            app,
            allow_origins=origins,
            allow_methods=("GET", "HEAD", "POST"),
            allow_headers=(ANY,),
            expose_headers=READABLE,
            max_age=AGAIN_S,
        )

    def preflight_response(self, request_headers: Headers) -> Response:
        response = super().preflight_response(request_headers)
        answers.count("HTTP", response.status_code)
        return response
