"""Routes of hami-serve: /v1/embeddings as OpenAI has it, /embed and /rerank as text-embeddings-inference."""

from __future__ import annotations

import base64
import re
from collections.abc import Awaitable, Callable
from typing import Any

import hami
import numpy as np
from hami_serve.routes import Answer, Exchange, Route

MAX_TEXTS = 2048  # of one request, as OpenAI has it
TOKEN_IDS = (
    "`input` has token ids, and a tokenizer of another model has made them; send texts (LangChain's OpenAIEmbeddings "
    "sends texts with check_embedding_ctx_length=False)"
)
ELEMENT = re.compile(r"\belement (\d+) of \d+(?:,|$)")  # in the note of an error of FanOut
OPENAI_CODES = {404: "model_not_found", 429: "rate_limit_exceeded"}
TEI_TYPES = {  # of errors, and their statuses
    400: ("Validation", 422),
    404: ("Validation", 404),
    429: ("Overloaded", 429),
    503: ("Unhealthy", 503),
    504: ("Overloaded", 429),
}


class Refused(Exception):
    """The request does not fit the protocol: the message, and the key that is wrong."""

    def __init__(self, message: str, key: str | None = None) -> None:
        super().__init__(message)
        self.key = key


def _openai(answer: Callable[[Exchange], Awaitable[Any]]) -> Callable[[Exchange], Awaitable[Answer]]:
    async def answered(exchange: Exchange) -> Answer:
        try:
            return Answer(200, await answer(exchange))
        except Refused as error:
            status, text, key = 400, str(error), error.key
        except hami.Error as error:
            (status, text), key = exchange.failure(error), None
        kind = "invalid_request_error" if status < 500 else "server_error"
        return Answer(
            status, {"error": {"message": text, "type": kind, "param": key, "code": OPENAI_CODES.get(status)}}
        )

    return answered


def _tei(answer: Callable[[Exchange], Awaitable[Any]]) -> Callable[[Exchange], Awaitable[Answer]]:
    async def answered(exchange: Exchange) -> Answer:
        try:
            return Answer(200, await answer(exchange))
        except Refused as error:
            return Answer(422, {"error": str(error), "error_type": "Validation"})
        except hami.Error as error:
            status, text = exchange.failure(error)
            kind, status = TEI_TYPES.get(status, ("Backend", 424) if status == 500 else ("Validation", status))
            return Answer(status, {"error": text, "error_type": kind})

    return answered


@_openai
async def embeddings(exchange: Exchange) -> Any:
    """Answer as /v1/embeddings of OpenAI."""
    body = await exchange.json()
    _only(body, "input", "model", "encoding_format", "dimensions", "user")
    texts = _texts(body, "input")
    encoding = _choice(body, "encoding_format", "float", "base64") or "float"
    component = exchange.component(body.get("model"), "embed")
    keys = {"dimensions": body["dimensions"]} if body.get("dimensions") is not None else {}
    requests = await _run(exchange, component, [{"data": text, **keys} for text in texts], "input")
    tokens = sum(int(request.get("tokens", 0)) for request in requests)
    return {
        "object": "list",
        "data": [
            {"object": "embedding", "index": i, "embedding": _encoded(request["result"], encoding)}
            for i, request in enumerate(requests)
        ],
        "model": component,
        "usage": {"prompt_tokens": tokens, "total_tokens": tokens},
    }


@_tei
async def embed(exchange: Exchange) -> Any:
    """Answer as /embed of text-embeddings-inference."""
    body = await exchange.json()
    _only(body, "inputs", "normalize", "truncate", "truncation_direction", "prompt_name", "dimensions")
    texts = _texts(body, "inputs")
    normalize = _flag(body, "normalize")
    keys: dict[str, Any] = {"normalize": True if normalize is None else normalize, **_cut(body)}
    if body.get("prompt_name") is not None:
        keys["prompt"] = body["prompt_name"]
    if body.get("dimensions") is not None:
        keys["dimensions"] = body["dimensions"]
    component = exchange.component(None, "embed")
    requests = await _run(exchange, component, [{"data": text, **keys} for text in texts], "inputs")
    return [_encoded(request["result"], "float") for request in requests]


@_tei
async def rerank(exchange: Exchange) -> Any:
    """Answer as /rerank of text-embeddings-inference."""
    body = await exchange.json()
    _only(body, "query", "texts", "raw_scores", "return_text", "truncate", "truncation_direction")
    query = body.get("query")
    if not isinstance(query, str):
        raise Refused(f"`query` must be a text, got {_named(query)}", "query")
    if not isinstance(body.get("texts"), list):
        raise Refused(f"`texts` must be a list of texts, got {_named(body.get('texts'))}", "texts")
    texts = _texts(body, "texts")
    keys = {"raw_scores": bool(_flag(body, "raw_scores")), **_cut(body)}
    component = exchange.component(None, "rerank")
    (request,) = await _run(exchange, component, [{"data": {"query": query, "texts": texts}, **keys}], "texts")
    with_text = _flag(body, "return_text")
    return [{**each, "text": texts[each["index"]]} if with_text else each for each in request["result"]]


async def _run(exchange: Exchange, component: str, requests: list[dict[str, Any]], key: str) -> list[dict[str, Any]]:
    """Run requests; the error of the first that fails names its index."""
    for i, error in enumerate(await exchange.call(component, requests)):
        if error is not None:
            wrong = isinstance(error, (hami.RequestError, hami.DataTypeError))
            index: int | None = i if len(requests) > 1 else _element(error) if key == "texts" else None
            if wrong and index is not None:
                raise Refused(f"{key}[{index}]: {exchange.failure(error)[1]}", key)
            raise error
    return requests


def _element(error: BaseException) -> int | None:
    """Return which element of a list in one request failed; None if the first text of all pairs is wrong, the query."""
    if "the first text" in str(error):
        return None
    notes = getattr(error, "__notes__", ())
    return next((int(found[1]) for note in notes if (found := ELEMENT.search(note))), None)


def _encoded(vector: Any, encoding: str) -> Any:
    array = np.asarray(hami.to_numpy(vector), "<f4")
    if array.ndim != 1:
        raise hami.ConfigError(
            f"the model returns {list(array.shape)} numbers, and not a vector for each text; serve the pipeline embed"
        )
    return base64.b64encode(array.tobytes()).decode() if encoding == "base64" else array


def _texts(body: dict[str, Any], key: str) -> list[str]:
    given = body.get(key)
    texts = [given] if isinstance(given, str) else given
    if not isinstance(texts, list):
        raise Refused(f"`{key}` must be a text or a list of texts, got {_named(given)}", key)
    if not 1 <= len(texts) <= MAX_TEXTS:
        raise Refused(f"`{key}` must have from 1 to {MAX_TEXTS} texts, got {len(texts)}", key)
    if all(_has_token_ids(text) for text in texts):
        raise Refused(TOKEN_IDS.replace("`input`", f"`{key}`"), key)
    for i, text in enumerate(texts):
        if not isinstance(text, str):
            raise Refused(f"{key}[{i}] must be a text, got {_named(text)}", key)
    return texts


def _has_token_ids(value: Any) -> bool:
    if isinstance(value, list):
        return bool(value) and all(map(_is_token_id, value))
    return _is_token_id(value)


def _is_token_id(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _only(body: dict[str, Any], *known: str) -> None:
    if unknown := [key for key in body if key not in known]:
        raise Refused(f"unknown key `{unknown[0][:100]}`; known are {', '.join(known)}", unknown[0][:100])


def _choice(body: dict[str, Any], key: str, *known: str) -> str | None:
    given = body.get(key)
    if given is not None and given not in known:
        raise Refused(f"`{key}` must be {' or '.join(known)}, got {_named(given)}", key)
    return given


def _flag(body: dict[str, Any], key: str) -> bool | None:
    given = body.get(key)
    if given is not None and not isinstance(given, bool):
        raise Refused(f"`{key}` must be true or false, got {_named(given)}", key)
    return given


def _cut(body: dict[str, Any]) -> dict[str, Any]:
    """Return the keys of a request that say what happens to texts that are too long."""
    if _choice(body, "truncation_direction", "left", "right", "Left", "Right") in ("left", "Left"):
        raise Refused("`truncation_direction` must be right: texts are cut at their end", "truncation_direction")
    truncate = _flag(body, "truncate")
    return {} if truncate is None else {"truncate": truncate}


def _named(value: Any) -> str:
    if isinstance(value, str):
        return repr(value[:100])
    return "nothing" if value is None else f"a value of the type {type(value).__name__}"


ROUTES = [Route("/v1/embeddings", embeddings), Route("/embed", embed), Route("/rerank", rerank)]
