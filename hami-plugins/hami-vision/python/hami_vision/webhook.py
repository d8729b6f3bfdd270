"""Webhook: a sink that posts the results of each frame as JSON."""

from __future__ import annotations

import base64
import json
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Mapping
from typing import Any

import hami

from hami_vision.detections import Detections
from hami_vision.sources import Frame


class Webhook:
    """Post {"source", "frame", "time", "result"} to an address, one request for each frame.

    Redirects are not followed. An answer other than 2xx, or none within `timeout`, is a failure of this sink.

    Args:
        url: An address of http or https. A name and password in it are sent as basic authentication.
        headers: More headers, such as {"Authorization": "Bearer …"}.
        timeout: Seconds for the connection and for each part of the answer.
        only_if: Called with the frame and its result; false: nothing is posted.

    Raises:
        ValueError: The address.
    """

    def __init__(
        self,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        timeout: float = 5.0,
        only_if: Callable[[Frame, Any], bool] | None = None,
    ) -> None:
        if not url.lower().startswith(("http://", "https://")):
            raise ValueError(f"a webhook is an address of http or https, got {hami.observe.redact(url)}")
        place = urllib.parse.urlsplit(url)
        login, at, address = place.netloc.rpartition("@")
        self._url, self._timeout, self._only_if = place._replace(netloc=address).geturl(), timeout, only_if
        basic = base64.b64encode(urllib.parse.unquote_to_bytes(login)).decode()
        self._headers = {**({"Authorization": f"Basic {basic}"} if at else {}), **(headers or {})}
        self._opener = urllib.request.build_opener(_NoRedirect)

    def __call__(self, frame: Frame, result: Any) -> None:
        """Post one result.

        Raises:
            OSError: No answer arrived in time, or its status was not 2xx.
        """
        if self._only_if is not None and not self._only_if(frame, result):
            return
        request = urllib.request.Request(
            self._url,
            json.dumps(message_of(frame, result)).encode(),
            {"Content-Type": "application/json", **self._headers},
        )
        try:
            with self._opener.open(request, timeout=self._timeout) as answer:
                answer.read(1)
        except urllib.error.HTTPError as error:
            with error:
                raise OSError(f"{hami.observe.redact(self._url)} answered {error.code} {error.reason}") from None


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Where a redirect leads, the headers would go too."""

    def redirect_request(self, req: Any, fp: Any, code: Any, msg: Any, headers: Any, newurl: Any) -> None:
        return None


def message_of(frame: Frame, result: Any) -> dict[str, Any]:
    """Return what a program gets for a frame: {"source", "frame", "time", "result"}, without NaN and arrays."""
    return {"source": frame.source, "frame": frame.index, "time": frame.time, "result": hami.to_json(plain(result))}


def plain(result: Any) -> Any:
    """Return a result with the objects of Detections as dicts."""
    if isinstance(result, Detections):
        return result.tolist()
    if isinstance(result, dict):
        return {key: plain(value) for key, value in result.items()}
    return result
