"""The HTTP API as a FastAPI application: routes, their documents, and errors as problems."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Annotated, Any, Final, NamedTuple

from fastapi import FastAPI, Header, Request, Response
from fastapi import Path as PathParameter
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from fastapi.routing import APIRoute
from pydantic import BeforeValidator
from starlette.exceptions import HTTPException

from reconsume import __version__
from reconsume.delay_levels.errors import ReconsumeError
from reconsume.sidecar.api.group_views import GroupViews
from reconsume.sidecar.api.models import (
    Answer,
    Answers,
    Batch,
    GroupView,
    NewMessage,
    Outcome,
    ProblemView,
    RecordToSendBack,
    SendBackBody,
    SentMessage,
)
from reconsume.sidecar.guarding.callers import Caller
from reconsume.sidecar.guarding.guard import problem_response, with_slashes
from reconsume.sidecar.guarding.shares import Threads, group_owner
from reconsume.sidecar.metrics import SidecarMetrics
from reconsume.sidecar.problems import PROBLEM_JSON, Problem, of_several, problem_of

_DESCRIPTION: Final = (
    "Retries for a consumer in any language: send a failed record back, and it returns on the group's retry "
    "topic after a delay, or rests in its dead-letter topic. A 2xx means that Kafka has acknowledged it."
)
_PROBLEMS: Final = {
    400: "The body is no JSON",
    401: "A token is needed",
    403: "The token does not open it, the group may not consume, or schedulers do not deliver to the topic",
    404: "The group, record or topic does not exist",
    409: "The record was sent back a different number of times",
    413: "The body, or the record, is too large",
    415: "The body is not declared as JSON",
    422: "A value was refused",
    429: "Too many requests",
    502: "Kafka refuses the sidecar",
    503: "Kafka has not acknowledged it; make the same call again after the header retry-after",
}
_JSON: Final = re.compile(r"\s*application/([\w.+-]+\+)?json\s*(;.*)?", re.IGNORECASE | re.DOTALL)
_NOT_READ: Final = 400
_NOT_FOUND: Final = 404
_NOT_ALLOWED: Final = 405


class Backend(NamedTuple):
    """The functions behind the routes; all but `require_ready` may raise `Problem` and `ReconsumeError`.

    Attributes:
        require_ready: raises `Problem` 503 until the groups are read and calls of earlier processes can be recognised.
        views: describe groups and create retry topics; blocking.
        send_back: sends one record of a group back; takes the idempotency key and the caller.
        send: sends a message, delayed or at once; takes the same.
        threads: threads for blocking calls.
    """

    require_ready: Callable[[], None]
    views: GroupViews
    send_back: Callable[[str, RecordToSendBack, str | None, Caller], Awaitable[Answer]]
    send: Callable[[NewMessage, str | None, Caller], Awaitable[SentMessage]]
    threads: Threads


Group = Annotated[str, PathParameter(description="the consumer group", pattern=r"\S"), BeforeValidator(with_slashes)]
IdempotencyKey = Annotated[
    str | None,
    Header(
        description="decides alone whether a call is one that was made before; without it the record's position does",
        min_length=1,
        max_length=255,
    ),
]


def make_api(backend: Backend, metrics: SidecarMetrics) -> FastAPI:
    """Build the application."""
    api = FastAPI(
        title="reconsume sidecar",
        version=__version__,
        description=_DESCRIPTION,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        separate_input_output_schemas=True,
        responses={status: _problem_document(text) for status, text in _PROBLEMS.items()},
    )
    _handle_errors(api)
    _add_routes(api, backend, metrics)
    return api


def _add_routes(api: FastAPI, backend: Backend, metrics: SidecarMetrics) -> None:
    @api.post("/v1/groups/{group}/send-back", response_model=Answer | Answers, summary="Send records back")
    async def send_back(
        request: Request, group: Group, body: SendBackBody, idempotency_key: IdempotencyKey = None
    ) -> Response:
        """Send back one record, or several with `ackIndex`. Records acknowledged before are not written a second time.

        If some of several fail, the response is the problem of one, with an answer or a problem for each.
        """
        caller = _caller(request)
        caller.require_group(group)
        backend.require_ready()
        backend.views.config_of(group)

        async def one(record: RecordToSendBack, key: str | None) -> Answer:
            answer = await backend.send_back(group, record, key, caller)
            metrics.sent_back(group, answer.outcome)
            return answer

        if isinstance(body, Batch):
            return JSONResponse(await _all_of(body, idempotency_key, one))
        return _told(await one(body, idempotency_key))

    @api.get("/v1/groups/{group}", response_model=GroupView, summary="What a consumer of the group has to know")
    async def get_group(request: Request, group: Group) -> Response:
        """Show a group. Subscribe to `retryTopic` beside the group's own topics."""
        _caller(request).require_group(group)
        backend.require_ready()
        return _told(await backend.threads.run(group_owner(group), partial(backend.views.view, group)))

    @api.put("/v1/groups/{group}", response_model=GroupView, summary="Make the group's retry topic")
    async def prepare_group(request: Request, group: Group) -> Response:
        """Create the retry topic if it is missing, for consumers that cannot subscribe to a missing topic."""
        _caller(request).require_group(group)
        backend.require_ready()
        return _told(await backend.threads.run(group_owner(group), partial(backend.views.prepare, group)))

    @api.post("/v1/messages", response_model=SentMessage, summary="Send a message, delayed or at once")
    async def send(request: Request, message: NewMessage, idempotency_key: IdempotencyKey = None) -> Response:
        """The schedulers deliver delayed messages; 403 for topics that their `allowed_real_topics` does not match."""
        return _told(await backend.send(message, idempotency_key, _caller(request)))


async def _all_of(
    batch: Batch, key: str | None, send_back: Callable[[RecordToSendBack, str | None], Awaitable[Answer]]
) -> dict[str, Any]:
    """Send back all records after `ackIndex` concurrently.

    Raises:
        Problem: one or more failed.
    """

    async def one(number: int, record: RecordToSendBack) -> dict[str, Any] | Problem:
        if number <= batch.ack_index:
            return _dump(Answer(outcome=Outcome.ACKNOWLEDGED))
        try:
            return _dump(await send_back(record, None if key is None else f"{key}/{number}"))
        except (Problem, ReconsumeError) as error:
            return problem_of(error)

    parts = await asyncio.gather(*(one(number, record) for number, record in enumerate(batch.records)))
    if any(isinstance(part, Problem) for part in parts):
        raise of_several(parts)
    return {"records": parts}


def _caller(request: Request) -> Caller:
    """Return the caller that the guard in front of the API has found."""
    caller: Caller = request.scope["caller"]
    return caller


def _dump(told: Answer | GroupView | SentMessage) -> dict[str, Any]:
    return told.model_dump(mode="json", by_alias=True)


def _told(told: Answer | GroupView | SentMessage) -> Response:
    return JSONResponse(_dump(told))


def _handle_errors(api: FastAPI) -> None:
    @api.exception_handler(Problem)
    @api.exception_handler(ReconsumeError)
    async def _ours(_request: Request, error: Problem | ReconsumeError) -> Response:
        return problem_response(problem_of(error))

    @api.exception_handler(RequestValidationError)
    async def _invalid(request: Request, error: RequestValidationError) -> Response:
        # A body with another declared type is never read as JSON, so it always arrives here.
        kind = request.headers.get("content-type", "")
        wrong_kind = request.method == "POST" and not _JSON.fullmatch(kind)
        return problem_response(_not_json(kind) if wrong_kind else _invalid_request(error.errors()))

    @api.exception_handler(Exception)
    async def _unexpected(_request: Request, error: Exception) -> Response:
        # The server logs it with its traceback.
        kind = type(error).__name__
        return problem_response(Problem("unexpected", f"{kind}; the sidecar's log says more"))

    @api.exception_handler(HTTPException)
    async def _http(request: Request, error: HTTPException) -> Response:
        if error.status_code == _NOT_READ:  # keep this error as it is; the framework makes others
            return problem_response(
                Problem(
                    "no-json",
                    "the body is not JSON in UTF-8, is nested too deeply, or has a number of over 4,300 digits",
                )
            )
        kind = "no-such-route" if error.status_code == _NOT_FOUND else "bad-request"
        detail = f"{error.detail}; /openapi.json shows what there is"
        answer = problem_response(Problem(kind, detail, status=error.status_code, title=str(error.detail)))
        answer.headers.update(error.headers or {})
        if error.status_code == _NOT_ALLOWED:
            # The framework lists only the methods of a path's first route.
            answer.headers["allow"] = ", ".join(sorted(_methods(api, request.url.path)))
        return answer


def _methods(api: FastAPI, path: str) -> set[str]:
    routes = [one for one in api.routes if isinstance(one, APIRoute) and one.path_regex.match(path)]
    return {method for route in routes for method in route.methods or ()}


def _not_json(kind: str) -> Problem:
    found = f"is {kind[:80]!r}" if kind else "is missing"
    return Problem("unsupported-media-type", f"content-type {found}: send the header `content-type: application/json`")


def _invalid_request(errors: Sequence[dict[str, Any]]) -> Problem:
    """Return the errors by field, without the values, which may be a payload."""
    if any(one["type"] == "json_invalid" for one in errors):
        why = "; ".join(str(one.get("ctx", {}).get("error", one["msg"])) for one in errors)
        return Problem("no-json", f"the body is not JSON: {why}; send application/json")
    wrong = [
        {"field": ".".join(str(part) for part in one["loc"]), "message": one["msg"].removeprefix("Value error, ")}
        for one in errors
    ]
    told = "; ".join(f"{one['field']}: {one['message']}" for one in wrong[:5])
    return Problem("illegal-value", told, errors=wrong)


def _problem_document(description: str) -> dict[str, Any]:
    return {"model": ProblemView, "description": description, "content": {PROBLEM_JSON: {}}}
