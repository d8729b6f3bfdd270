"""A Ray Serve deployment: replicas of the server, on one machine or many, each with the batching of its own pipes."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Any

import hami
from ray import serve
from starlette.applications import Starlette

from hami_serve.http_app import MAX_BODY, application
from hami_serve.inference import with_deadline
from hami_serve.model import Model
from hami_serve.rounder import AllRounder
from hami_serve.server import import_all
from hami_serve.serving import Serving

MAX_ONGOING_REQUESTS = 256  # of a replica; with Ray's default of 5, no batch would be larger than 5


def deployment(
    source: Any,
    *,
    imports: Sequence[str] = (),
    models_per_replica: int | None = None,
    max_body: int = MAX_BODY,
    **options: Any,
) -> serve.Application:
    """Return an application for `ray.serve.run` that serves models by the Open Inference Protocol over HTTP.

        from ray import serve
        import hami_serve.ray

        serve.run(hami_serve.ray.deployment("models", num_replicas=2))

    Every replica is a process with all models, and its pipes batch the requests that it gets. The parameter `timeout`
    of a request begins there, and the parameter `deadline` also counts the time in queues of Ray. A client that
    disconnects cancels its request. Other deployments call the methods of `Replica` through a handle.

    Args:
        source: What `hami_serve.app` takes, except an `AllRounder`. Files are read by each replica.
        imports: Python modules and files that each replica imports first, as `--import` of `hami serve`.
        models_per_replica: Maximum number of models that are loaded in a replica. Each model is then loaded by the
            first request for it, and Ray sends a request with the multiplexed model id NAME to a replica that has
            loaded the model NAME. By default every replica loads all models at its start.
        max_body: Maximum size of a request in bytes.
        options: Options of `ray.serve.deployment`, such as `num_replicas`, `autoscaling_config` and
            `ray_actor_options`. `max_ongoing_requests` is 256 by default.

    Raises:
        ConfigError: `source` is an `AllRounder`, whose pipes cannot leave their process.
    """
    if isinstance(source, AllRounder):
        raise hami.ConfigError("an AllRounder stays in its process; give the deployment what the AllRounder is made of")

    def build() -> Starlette:
        import_all(imports)
        if models_per_replica is None:
            return application(Serving(source), max_body)
        make = multiplexed(models_per_replica)
        return application(Serving(source, make=make, lazy=True, max_loaded=models_per_replica), max_body)

    options = {"name": "hami", "max_ongoing_requests": MAX_ONGOING_REQUESTS, **options}
    made: serve.Application = serve.deployment(**options)(serve.ingress(build)(Replica)).bind()
    return made


class Replica:
    """What a handle of the deployment can call."""

    app: Starlette  # set by Ray

    @property
    def _rounder(self) -> AllRounder:
        rounder: AllRounder = self.app.state.serving.rounder
        return rounder

    async def call(
        self,
        request: dict[str, Any],
        model: str = "",
        version: str | None = None,
        timeout: float | None = None,
        deadline: float | None = None,
    ) -> dict[str, Any]:
        """Run a request, as `AllRounder.acall`. Cancelling the response of the handle cancels the request.

        Args:
            request: The request; it is copied to the replica and back.
            model: The name of the model; by default the multiplexed model id of the handle, else the only model.
            version: The version of the model.
            timeout: Time limit in seconds, from when the replica gets the request.
            deadline: A moment of time.time() after which the caller stops waiting; queues of Ray count.
        """
        return await self._rounder.acall(self._named(model), request, version, with_deadline(timeout, deadline))

    async def stream(
        self,
        request: dict[str, Any],
        model: str = "",
        version: str | None = None,
        timeout: float | None = None,
        deadline: float | None = None,
    ) -> AsyncGenerator[Any, None]:
        """Run a request and yield its parts, as `AllRounder.astream`; for a handle with the option `stream=True`."""
        limit = with_deadline(timeout, deadline)
        async with aclosing(self._rounder.astream(self._named(model), request, version, limit)) as parts:
            async for part in parts:
                yield part

    def _named(self, model: str) -> str:
        name = model or serve.get_multiplexed_model_id()
        if name:
            return name
        names = self._rounder.components()
        if len(names) != 1:
            raise hami.RequestError(f"the request names no model; models: {', '.join(names)}")
        return names[0]

    def check_health(self) -> None:
        """Tell Ray to replace this replica if its models were closed."""
        if not self.app.state.serving.ready:
            raise hami.PipeClosed("the models of this replica are closed")


def multiplexed(models: int) -> type[AllRounder]:
    """Return a class that tells Ray which models it has loaded: the router prefers this replica for them."""

    async def load(name: str) -> str:
        return name  # AllRounder loads the model, and unloads models in the same order as Ray forgets them

    announce = serve.multiplexed(max_num_models_per_replica=models)(load)

    class Multiplexed(AllRounder):
        async def acquire_async(
            self, component: str, version: str | None = None, timeout: float | None = None, drawn: str | None = None
        ) -> tuple[Model, float | None]:
            await announce(self.registry.component(component))
            return await super().acquire_async(component, version, timeout, drawn)

    return Multiplexed
