"""The HTTP server: OpenAI's endpoints over an engine, what operators ask for, and the page."""

from __future__ import annotations

from pathlib import Path
from time import time
from typing import Annotated, Any, Protocol

from fastapi import APIRouter, Body, FastAPI, Request
from fastapi.routing import APIRoute
from pydantic_core import from_json
from starlette.middleware.cors import CORSMiddleware
from starlette.responses import FileResponse, Response
from starlette.staticfiles import StaticFiles

from paceline.serve.engine import Engine
from paceline.serve.errors import ApiError, Json, not_ready, refuse_all
from paceline.serve.gate import Gate
from paceline.serve.replies import (
    ChatCompletion,
    Health,
    ModelCard,
    ModelList,
    Status,
    TextCompletion,
    documented,
)
from paceline.serve.schema import ChatRequest, CompletionRequest
from paceline.serve.service import Service
from paceline.serve.settings import Settings

_PAGE = Path(__file__).parent / "page"
_STREAMED = {"content": {"text/event-stream": {}}}


class Counts(Protocol):
    """Metrics in Prometheus' text format."""

    def text(self) -> bytes: ...


def make_app(
    engine: Engine, settings: Settings | None = None, metrics: Counts | None = None
) -> FastAPI:
    """The server over `engine`, as an ASGI application. It neither starts nor ends the engine:
    before and after, it answers 503."""
    settings = settings or Settings()
    app = FastAPI(
        title="Paceline",
        docs_url=None,  # these load scripts from elsewhere
        redoc_url=None,
        telemetry={"tracing": False, "metrics": False, "logs": False},
        redirect_slashes=False,
    )
    service = Service(engine, settings)
    app.include_router(_answers(service))
    app.include_router(_state(service, metrics))
    app.include_router(_page())
    app.mount("/page", StaticFiles(directory=_PAGE, check_dir=False))
    refuse_all(app)
    app.add_middleware(Gate, settings=settings)
    if settings.origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=list(settings.origins),
            allow_methods=["GET", "POST"],
            allow_headers=["authorization", "content-type"],
        )
    return app


class _Strictly(Request):
    """A request whose JSON is read without NaN, without half characters, and not too deep."""

    async def json(self) -> Any:
        try:
            return from_json(await self.body(), allow_inf_nan=False)
        except ValueError as error:
            raise ApiError(400, f"the body is not JSON: {error}", code="invalid_json") from None


class _StrictRoute(APIRoute):
    def get_route_handler(self) -> Any:
        handle = super().get_route_handler()

        async def strictly(request: Request) -> Response:
            return await handle(_Strictly(request.scope, request.receive))

        return strictly


def _answers(service: Service) -> APIRouter:
    router = APIRouter(route_class=_StrictRoute)

    @router.post("/v1/completions", responses=documented(TextCompletion, **_STREAMED))
    async def completions(fields: Annotated[CompletionRequest, Body()]) -> Response:
        return await service.complete(fields)

    @router.post("/v1/chat/completions", responses=documented(ChatCompletion, **_STREAMED))
    async def chat_completions(fields: Annotated[ChatRequest, Body()]) -> Response:
        return await service.chat(fields)

    return router


def _state(service: Service, metrics: Counts | None) -> APIRouter:
    router = APIRouter()
    card = {"id": service.model, "object": "model", "created": int(time()), "owned_by": "paceline"}

    @router.get("/v1/models", responses=documented(ModelList))
    async def models() -> Response:
        return Json({"object": "list", "data": [card]})

    @router.get("/v1/models/{name:path}", responses=documented(ModelCard))
    async def model(name: str) -> Response:
        if name != service.model:
            raise ApiError(404, f"there is no model {name!r} here", code="model_not_found")
        return Json(card)

    @router.get("/health", responses=documented(Health))
    async def health() -> Response:
        if not service.engine.ready:
            raise not_ready()
        return Json({"status": "ok"})

    @router.get("/status", responses=documented(Status))
    async def status() -> Response:
        return Json(service.status())

    if metrics is not None:

        @router.get("/metrics", include_in_schema=False)
        async def counts() -> Response:
            return Response(metrics.text(), media_type="text/plain; version=0.0.4; charset=utf-8")

    return router


def _page() -> APIRouter:
    router = APIRouter()

    @router.get("/", include_in_schema=False)
    async def page() -> Response:
        return FileResponse(_PAGE / "index.html", media_type="text/html; charset=utf-8")

    return router
