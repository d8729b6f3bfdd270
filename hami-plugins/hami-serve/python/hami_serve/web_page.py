"""The page of the server: its models, a form to try each, and programs that use it.

The page has no data: it reads those of the models as JSON, and shows them as text. So it needs no token, and a name of
a stranger is never markup.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import version
from importlib.resources import files
from typing import Any
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import Response

from hami_serve.describing import index, model_metadata
from hami_serve.http_plain import plain_path
from hami_serve.model import Model, TensorSpec
from hami_serve.openapi_models import unique
from hami_serve.rounder import AllRounder
from hami_serve.snippets import count_of, form_of, sample_of, snippets, takes_picture

PAGES: Mapping[str, tuple[str, str]] = {  # the path: file and media type
    "/": ("index.html", "text/html"),
    "/docs": ("index.html", "text/html"),
    "/docs/page.css": ("page.css", "text/css"),
    "/docs/page.js": ("page.js", "text/javascript"),
}
MODELS = "/docs/models.json"
HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' blob: data:; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "Cache-Control": "no-cache",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


async def page(request: Request) -> Response:
    """Answer with a file of the page."""
    path = request.scope["path"].removeprefix(request.scope.get("root_path", "")) or "/"
    name, kind = PAGES[path]
    return Response(files("hami_serve").joinpath("page").joinpath(name).read_bytes(), media_type=kind, headers=HEADERS)


def models_of(rounder: AllRounder, request: Request, taken: frozenset[str]) -> dict[str, Any]:
    """Return what the page shows: each model with its tensors, an example of each input, and programs."""
    usable = {model.handle.component: model for model in unique(rounder.registry.models())}
    base = str(request.base_url).rstrip("/")
    token = "authorization" in request.headers
    return {
        "server": f"hami-serve {version('hami-serve')}",
        "models": [_shown(rounder, usable[name], base, token, taken) for name in usable],
        "unavailable": [each for each in index(rounder) if each["name"] not in usable],
    }


def _shown(rounder: AllRounder, model: Model, base: str, token: bool, taken: frozenset[str]) -> dict[str, Any]:
    path = quote(plain_path(model.handle.component, taken))
    return {
        "name": model.handle.component,
        "versions": model_metadata(rounder, model)["versions"],
        "path": path.lstrip("/"),  # relative to the page
        "inputs": [{**_tensor(spec), **_example(spec)} for spec in model.inputs],
        "outputs": [_tensor(spec) for spec in model.outputs],
        "picture": takes_picture(model),
        "snippets": snippets(model, base + path, token=token),
    }


def _tensor(spec: TensorSpec) -> dict[str, Any]:
    return {"name": spec.name, "datatype": spec.datatype, "shape": list(spec.shape)}


def _example(spec: TensorSpec) -> dict[str, Any]:
    return {"form": form_of(spec), "sample": sample_of(spec), "count": count_of(spec)}
