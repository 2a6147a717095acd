"""The gateway as an ASGI application. Importing it loads neither torch nor a codec library."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import AsyncIterator, Sequence
from http import HTTPStatus

from fastapi import APIRouter, Depends, FastAPI, HTTPException, WebSocket
from fastapi.middleware.cors import CORSMiddleware
from starlette.routing import BaseRoute, NoMatchFound

from realtime_tts import __version__
from realtime_tts.config import Settings
from realtime_tts.dialects.native import NativeDialect
from realtime_tts.server.admission.auth import is_loopback
from realtime_tts.server.admission.peers import Peers
from realtime_tts.server.gateway import Gateway
from realtime_tts.server.http import adapters, browser_tokens, routes
from realtime_tts.server.http.docs_page import mount_docs
from realtime_tts.server.http.middleware import Containment, InTurns
from realtime_tts.server.http.problems import install_problem_handlers
from realtime_tts.server.stream.websocket import serve_stream
from realtime_tts.server.vendors import cartesia, deepgram, elevenlabs, openai, platforms
from realtime_tts.server.voices import routes as voice_routes
from realtime_tts.workers.client import EngineClient

DIALECTS = [
    openai.router,
    cartesia.router,
    elevenlabs.router,
    deepgram.router,
    platforms.livekit_router,
    platforms.vapi_router,
    platforms.jambonz_router,
]  # of other services
_DESCRIPTION = (
    "Text deltas in, speech out. Live speech goes over the WebSocket `/v1/stream` (docs/protocol/native.md), a whole "
    "text also over plain HTTP; clients of other services find here what they know (docs/guides/clients.md)."
)


def create_app(settings: Settings, engine: EngineClient, peers: Peers | None = None) -> FastAPI:
    """Return the application; its lifespan starts and closes the engine. `app.state.gateway` is the `Gateway`.

    Raises:
        ConfigError: settings that would allow access without a key beyond loopback, or malformed key hashes.
    """
    gateway = Gateway(settings, engine, peers)
    for dialect in DIALECTS:
        gateway.admission.authenticator.read_keys_in(dialect.keys)

    @contextlib.asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        gateway.start()
        try:
            yield
        finally:
            await gateway.close()

    app = FastAPI(
        title="realtime-tts",
        version=__version__,
        routes=api_routes(),
        description=_DESCRIPTION,
        lifespan=lifespan,
        openapi_url=None,  # nor has it FastAPI's pages then, which load their viewers from a CDN: see `mount_docs`
        redirect_slashes=False,
    )
    app.state.gateway = gateway
    install_problem_handlers(app)
    app.add_middleware(Containment)
    if origins := gateway.admission.authenticator.origins:
        # Browsers send a preflight before a key, and hide response headers that are not exposed. No cookies are used.
        app.add_middleware(
            CORSMiddleware, allow_origins=origins, allow_methods=["*"], allow_headers=["*"], expose_headers=["*"]
        )

    app.add_middleware(InTurns, authenticator=gateway.admission.authenticator)
    if metrics_on_main_port(settings):
        app.include_router(routes.metrics, dependencies=routes.NEEDS_KEY, responses=routes.problems(401))

    @app.websocket("/{path:path}")
    async def elsewhere(websocket: WebSocket) -> None:
        raise HTTPException(HTTPStatus.NOT_FOUND)

    mount_docs(app)
    routes.mount_playground(app)
    _build_routes(app.routes)
    return app


def _build_routes(routes: Sequence[BaseRoute]) -> None:
    """Build those that are included: FastAPI builds one when it is first compared with anything, for up to 0.3 s.

    Meanwhile it hides a warning of Pydantic in all threads, so this is not work for a second thread.
    """
    for route in routes:
        with contextlib.suppress(NoMatchFound):
            route.url_path_for("")


@functools.cache
def api_routes() -> list[BaseRoute]:
    """Return the routes that no setting changes: one list for all applications of a process, since FastAPI takes 0.3 s
    to build what it needs of them."""
    router = APIRouter()

    # Before all other routes: paths are compared one by one, and most refused handshakes are for this path.
    @router.websocket("/v1/stream")
    async def stream(websocket: WebSocket) -> None:
        await serve_stream(websocket, websocket.app.state.gateway, NativeDialect)

    router.include_router(routes.health)
    # Load balancers send no key and receive counts and device states only; pages of other origins are refused.
    router.include_router(routes.readiness, dependencies=[Depends(routes.check_origin)])
    # Before the native routes: a dialect shares some of their paths and matches requests with its own kind of key.
    for dialect in DIALECTS:
        router.include_router(dialect)
    router.include_router(routes.catalogue)
    router.include_router(voice_routes.voices)
    router.include_router(adapters.adapters)
    router.include_router(routes.stream)
    router.include_router(browser_tokens.tokens)
    return router.routes


def metrics_on_main_port(settings: Settings) -> bool:
    """Return whether `/metrics` is served on the main port: on loopback only, else it has a separate port."""
    return is_loopback(settings.server.host)


def create_metrics_app(gateway: Gateway) -> FastAPI:
    """Return the application of the separate metrics port: `/metrics`, `/healthz` and `/readyz`."""
    app = FastAPI(openapi_url=None)
    app.state.gateway = gateway
    install_problem_handlers(app)
    app.add_middleware(Containment)
    app.include_router(routes.health)
    for part in (routes.readiness, routes.metrics):
        app.include_router(part, dependencies=[Depends(routes.check_metrics_host)])
    return app
