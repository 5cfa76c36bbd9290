"""The HTTP application: its paths, its documents, and every error as a problem with a sentence."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Annotated, Any

from fastapi import FastAPI, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, JSONResponse, PlainTextResponse
from pydantic import BaseModel
from starlette.exceptions import HTTPException

from ..predictor import Predictor
from .answering import Answering, ClientLeftError, Result
from .bodies import ANY_BYTES, CONTENT_TYPES, Body, Upload
from .gate import Gate
from .problems import MEDIA_TYPE, Problem, sentence, writable
from .server_metrics import CONTENT_TYPE
from .server_pages import describe, document_api
from .server_settings import ServerSettings

_MOST_TOP = 1000
_log = logging.getLogger(__name__)


class TopClass(BaseModel):
    """A class and its probability."""

    label: int
    name: str | None
    probability: float


class Milliseconds(BaseModel):
    """The time that an input took: decoded, then waiting for the network, then in the network with its batch."""

    decoded: float
    queued: float
    computed: float


class PredictedInput(BaseModel):
    """The answer to one input."""

    label: int
    name: str | None
    probability: float
    top: list[TopClass]
    size: list[int]
    level: int
    grid: list[int]
    batch: int
    milliseconds: Milliseconds


class ProblemDocument(BaseModel):
    """Why there is no answer (RFC 9457)."""

    status: int
    title: str
    detail: str


class FileResult(BaseModel):
    """One file of a form: its name, and either the answer or the problem."""

    file: str
    answer: PredictedInput | None = None
    problem: ProblemDocument | None = None


class FormResults(BaseModel):
    """The results of a form's files, in their order."""

    results: list[FileResult]


class NetworkDocument(BaseModel):
    """What the server runs, and what it takes."""

    kind: str
    channels: int
    grids: list[list[int]]
    class_names: list[str] | None
    limits: dict[str, int | float]


class Application:
    """A predictor behind HTTP. It is an ASGI application; `answering` holds its state.

    Args:
        predictor: any.
        settings: limits, and how to batch.
    """

    def __init__(self, predictor: Predictor, settings: ServerSettings) -> None:
        self.answering = Answering(predictor, settings)
        self.api = _make_api(self.answering)
        self._gate = Gate(self.api, self.answering)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        await self._gate(scope, receive, send)


def _make_api(answering: Answering) -> FastAPI:
    predictor, settings = answering.predictor, answering.settings
    one = f"{'an' if predictor.kind == 'image' else 'a'} {predictor.kind}"

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        yield
        await asyncio.to_thread(answering.close)

    api = FastAPI(
        title="arrn",
        version="1",
        summary=f"Predictions for {one} of any size",
        docs_url=None,  # FastAPI's own page loads its scripts from another server
        redoc_url=None,
        lifespan=lifespan,
    )
    _answer_errors(api)

    @api.post(
        "/predict",
        summary=f"Classify {one}, or several",
        response_model=PredictedInput | FormResults,
        response_description="One answer, or the results of a form.",
        responses=_problems(401, 408, 413, 415, 422, 429, 500, 503),
        openapi_extra={"requestBody": _request_body(predictor)},
    )
    async def predict(request: Request, top: Annotated[int, Query(ge=1, le=_MOST_TOP)] = 5) -> Response:
        """A raw body is one file, and the answer is one object. A form has any files, and the answer has their results.

        A file that cannot be read does not stop the others: its result is a problem. If no file can be read, the
        status is that of the first problem.
        """
        return await _predict(answering, request, top)

    @api.get(
        "/healthz",
        summary="Whether the server should get requests",
        response_description="The server can answer.",
        responses=_problems(503),
    )
    async def healthz() -> dict[str, str]:
        sickness = answering.sickness()
        if sickness is not None:
            raise Problem(503, sickness)
        return {"status": "ok"}

    @api.get("/metrics", summary="Counts for Prometheus", response_class=PlainTextResponse, responses=_problems(401))
    async def metrics() -> Response:
        return Response(answering.metrics.text(), media_type=CONTENT_TYPE)

    @api.get("/network", summary="The network's levels and classes, and the limits", responses=_problems(401))
    async def network() -> NetworkDocument:
        names = predictor.class_names
        return NetworkDocument(
            kind=predictor.kind,
            channels=predictor.channels,
            grids=[list(grid) for grid in predictor.grids],
            class_names=None if names is None else [writable(name) for name in names],
            limits={name: getattr(settings, name) for name in _LIMITS},
        )

    @api.get("/", include_in_schema=False)
    async def description() -> HTMLResponse:
        return HTMLResponse(describe(predictor.kind, settings))

    @api.get("/docs", include_in_schema=False)
    async def docs() -> HTMLResponse:
        return HTMLResponse(document_api(api.openapi()))

    return api


_LIMITS = ("max_body", "max_files", "max_pixels", "max_waiting", "receive_seconds", "answer_seconds")


async def _predict(answering: Answering, request: Request, top: int) -> Response:
    body = Body(request.scope, request.receive, answering.settings, answering.held)
    try:
        answering.check_room(1)  # before the body is read, and again when the files are counted
        uploads = await body.uploads(answering.predictor.ndim)
        results = await answering.answer(uploads, top, body.left)
        return _form_response(uploads, results) if body.is_form else _response(results[0])
    except Problem as problem:
        if not body.finished:
            problem.headers["Connection"] = "close"
        return problem.response()
    except (ClientLeftError, ConnectionAbortedError):
        return Response(status_code=499)  # nobody reads it; counted among the requests
    finally:
        body.release()


def _response(result: Result) -> Response:
    return result.response() if isinstance(result, Problem) else JSONResponse(result)


def _form_response(uploads: Sequence[Upload], results: Sequence[Result]) -> Response:
    told = [
        {"file": upload.name} | ({"problem": result.document()} if isinstance(result, Problem) else {"answer": result})
        for upload, result in zip(uploads, results, strict=True)
    ]
    first = results[0]
    if isinstance(first, Problem) and all(isinstance(result, Problem) for result in results):
        count = len(results)
        detail = first.detail if count == 1 else f"All {count} files have problems, the first: {first.detail}"
        return Problem(first.status, detail, first.headers, {"results": told}).response()
    return JSONResponse({"results": told})


def _answer_errors(api: FastAPI) -> None:
    @api.exception_handler(Problem)
    async def told(request: Request, error: Problem) -> Response:
        return error.response()

    @api.exception_handler(RequestValidationError)
    async def invalid(request: Request, error: RequestValidationError) -> Response:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"][1:])
        detail = f"The parameter {where} is {first['input']!r:.80}: {sentence(first['msg'])}"
        return Problem(422, writable(detail)).response()

    @api.exception_handler(HTTPException)
    async def unknown(request: Request, error: HTTPException) -> Response:
        words = {
            404: f"There is nothing at {request.url.path[:80]!r}: POST a file to /predict, or read /docs.",
            405: f"{request.method} is not possible at {request.url.path}: see /docs.",
        }
        return Problem(
            error.status_code, words.get(error.status_code, sentence(error.detail)), error.headers
        ).response()

    @api.exception_handler(Exception)
    async def failed(request: Request, error: Exception) -> Response:
        return Problem(500, "The server failed on this request; its log tells why.").response()


def _problems(*statuses: int) -> dict[int | str, dict[str, Any]]:
    schema = {"$ref": "#/components/schemas/ProblemDocument"}
    return {
        status: {
            "model": ProblemDocument,
            "description": _MEANINGS[status],
            "content": {MEDIA_TYPE: {"schema": schema}},
        }
        for status in statuses
    }


_MEANINGS = {
    401: "The token is missing or wrong.",
    408: "The body did not arrive in time.",
    413: "The body is too large, or the form has too many files.",
    415: "The content type or content encoding is not taken.",
    422: "The file cannot be read or is too large, or a parameter is wrong.",
    429: "Too many inputs are waiting.",
    500: "The network failed on this input.",
    503: "The server is stopping, has too many requests, or took too long.",
}


def _request_body(predictor: Predictor) -> dict[str, Any]:
    file = {"type": "string", "format": "binary"}
    _, kinds = CONTENT_TYPES[predictor.ndim]
    form = {"type": "object", "properties": {"file": {"type": "array", "items": file}}}
    content = {kind: {"schema": file} for kind in (*kinds, ANY_BYTES)}
    return {"required": True, "content": content | {"multipart/form-data": {"schema": form}}}
