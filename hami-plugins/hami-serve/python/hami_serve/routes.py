"""Routes of plugins: other protocols for the models of a server.

An entry point of the group `hami_serve.routes` names a list of `Route`:

    [project.entry-points."hami_serve.routes"]
    acme = "acme.serving:ROUTES"

    async def shout(exchange: Exchange) -> Answer:
        body = await exchange.json()
        component = exchange.component(body.get("model"), preferred="shout")
        request = {"data": body["text"]}
        (error,) = await exchange.call(component, [request])
        if error is not None:
            status, text = exchange.failure(error)
            return Answer(status, {"message": text})
        return Answer(200, {"answer": request["result"]})


    ROUTES = [Route("/acme/shout", shout)]
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any, NamedTuple

import hami

from hami_serve.errors import BadRequest, UnknownModel, short
from hami_serve.failures import of_load, report
from hami_serve.http_body import Receive, UntilClientLeaves

if TYPE_CHECKING:
    from hami_serve.rounder import AllRounder

GROUP = "hami_serve.routes"


class Answer(NamedTuple):
    """The status of an answer, and its content, which is sent as the JSON that `hami.to_json` makes of it."""

    status: int
    content: Any


class Route(NamedTuple):
    """A path that takes JSON by POST, and the function that answers. An error that it raises becomes an answer."""

    path: str
    function: Callable[[Exchange], Awaitable[Answer]]


class Exchange:
    """A request of a client for the route of a plugin, and the models of the server."""

    def __init__(
        self, rounder: AllRounder, path: str, receive: Receive, read: Callable[[], Awaitable[dict[str, Any]]]
    ) -> None:
        self._rounder = rounder
        self._path = path
        self._receive = receive
        self._read = read

    async def json(self) -> dict[str, Any]:
        """Return the body of the request.

        Raises:
            hami.RequestError: It is not a JSON object, or larger than the server accepts.
        """
        return await self._read()

    def component(self, name: Any, preferred: str) -> str:
        """Return the component that a request names; without a name the preferred one, else the only one.

        Raises:
            hami.NotFound: The server has no such component.
            hami.RequestError: The name is not a string, or is needed.
        """
        known = self._rounder.components()
        if name is None:
            if preferred in known:
                return preferred
            if len(known) == 1:
                return known[0]
            raise BadRequest(
                f'{self._path} uses the model "{preferred}", which this server does not have; it has {_listed(known)}'
            )
        if not isinstance(name, str):
            raise BadRequest(f"model must be a string, got {short(name)}")
        if name not in self._rounder:
            raise UnknownModel(f"this server has no model {short(name)}; it has {_listed(known)}")
        return name

    async def call(self, component: str, requests: Sequence[dict[str, Any]]) -> list[hami.Error | None]:
        """Run requests, and set their keys. Return the error of each, or None. They end when the client leaves."""
        async with UntilClientLeaves(self._receive):
            try:
                with of_load(component):
                    model, left = await self._rounder.acquire_async(component)
            except hami.Error as error:
                return [error] * len(requests)
            return await self._rounder.acall_rows(model, requests, left)

    def failure(self, error: BaseException) -> tuple[int, str]:
        """Log an error; return its status and the text for the client."""
        failure = report(error, "HTTP", f"POST {self._path}")
        return failure.status.http, failure.text


def _listed(names: Sequence[str]) -> str:
    return ", ".join(map(short, names[:10])) + (", …" if len(names) > 10 else "") or "none"


def plugin_routes() -> list[Route]:
    """Return the routes of the installed plugins that are not disabled.

    Raises:
        hami.PluginError: Two plugins have one path, or a plugin cannot be imported.
    """
    usable = {plugin.distribution for plugin in hami.plugins() if plugin.state != "disabled"}
    found: dict[str, Route] = {}
    for entry in entry_points(group=GROUP):
        owner = entry.dist.name if entry.dist else ""
        if owner not in usable:
            continue
        try:
            routes: Sequence[Route] = entry.load()
        except Exception as error:
            raise hami.PluginError(f"the routes of {owner} cannot be imported: {error}") from error
        for route in routes:
            if route.path in found:
                raise hami.PluginError(f"{owner} and another plugin have the route {route.path}; uninstall one of them")
            found[route.path] = route
    return list(found.values())
