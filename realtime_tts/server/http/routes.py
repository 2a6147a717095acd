"""Plain HTTP routes: health, readiness, metrics, models and voices, tokens, and the playground's files."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator
from http import HTTPStatus
from pathlib import Path
from typing import Annotated, Any, TypeVar

from fastapi import APIRouter, Depends, FastAPI, HTTPException, Request, Response, Security
from fastapi.responses import JSONResponse
from fastapi.security import APIKeyQuery, HTTPBearer
from fastapi.staticfiles import StaticFiles
from pydantic import BaseModel, ValidationError
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import HTTPConnection
from starlette.types import Scope

from realtime_tts import __version__
from realtime_tts.dialects.json_input import Body, invalid
from realtime_tts.errors import InvalidRequest, RequestTooLarge, VoiceNotFound
from realtime_tts.server.admission.client import Client
from realtime_tts.server.admission.lateness import Pace
from realtime_tts.server.gateway import Gateway
from realtime_tts.server.http import schemas
from realtime_tts.server.http.catalogue import added_voice
from realtime_tts.server.http.schemas import Health, ModelList, Problem, Readiness, Voice, VoiceList
from realtime_tts.server.metrics import CONTENT_TYPE

B = TypeVar("B", bound=BaseModel)
J = TypeVar("J", bound=Body)

MAX_BODY_BYTES = 16 * 1024
_PACKAGE = Path(__file__).resolve().parents[2]
# In a wheel the playground lies inside the package, in a checkout beside it.
PLAYGROUND_DIRECTORIES = (_PACKAGE / "playground", _PACKAGE.parent / "clients" / "browser")
_CONTENT_SECURITY_POLICY = (
    "default-src 'self'; connect-src 'self' http: https: ws: wss:; media-src 'self' blob:; worker-src 'self' blob:; "
    "img-src 'self' data:; style-src 'self' 'unsafe-inline'; frame-ancestors 'none'; base-uri 'none'"
)

_PROBLEMS = {
    400: "an invalid request, or a malformed Host or Origin header",
    401: "the API key is missing or not active; only for servers with keys",
    403: "a page of another origin, a forbidden host name, or a token in place of an API key",
    404: "an unknown id or name; a voice or model of another service only where `strict_ids` is on",
    409: "the name is taken, the adapter is loaded already, or their limit is reached",
    413: "a body or a text that is too large",
    422: "a recording that is too short, silent, clipped or without speech; or damaged or unsuitable adapter files",
    429: "a limit of the key or token is reached; see `retry-after`",
    503: "overloaded, not ready, or shutting down; see `retry-after`",
}
# For the documentation only: `Authenticator` decides.
_CREDENTIALS = (
    Security(HTTPBearer(scheme_name="bearer", description="`Authorization: Bearer <key>`", auto_error=False)),
    Security(
        APIKeyQuery(
            name="api_key",
            scheme_name="query",
            description="for a browser's socket, which cannot set headers",
            auto_error=False,
        )
    ),
)


Documented = dict[int | str, dict[str, Any]]  # as FastAPI requires it
JsonObject = dict[str, object]


def problems(*statuses: int, model: object = Problem) -> Documented:
    """Return the documented errors with these statuses, or all, with the type of their body."""
    return {status: {"model": model, "description": _PROBLEMS[status]} for status in statuses or _PROBLEMS}


def takes(schema: type[BaseModel]) -> dict[str, Any]:
    """Return the documented JSON body of a route that reads it itself."""
    described = {name: value for name, value in schema.model_json_schema().items() if name != "title"}
    definitions = described.pop("$defs", {})

    def inline(value: Any) -> Any:
        if isinstance(value, dict) and "$ref" in value:
            return inline(definitions[value["$ref"].rpartition("/")[2]])
        if isinstance(value, dict):
            return {name: inline(each) for name, each in value.items()}
        return [inline(each) for each in value] if isinstance(value, list) else value

    return {"requestBody": {"content": {"application/json": {"schema": inline(described)}}}}


async def read_bounded(request: Request, max_bytes: int) -> bytes:
    """Read a body of limited size. FastAPI itself would read all of it, and before the key is checked.

    Raises:
        RequestTooLarge: the body has more than `max_bytes` bytes.
    """
    return b"".join([part async for part in bounded_parts(request, max_bytes)])


async def bounded_parts(request: Request, max_bytes: int) -> AsyncGenerator[bytes, None]:
    """Yield the parts of a body as they arrive. Raises RequestTooLarge."""
    num_bytes = 0
    async for part in request.stream():
        num_bytes += len(part)
        if num_bytes > max_bytes:
            raise RequestTooLarge(f"the body has more than {max_bytes} bytes")
        yield part


def is_form(request: Request) -> bool:
    return request.headers.get("content-type", "").partition(";")[0].strip().lower() == "multipart/form-data"


async def read_json(request: Request, schema: type[J], max_bytes: int = MAX_BODY_BYTES) -> J:
    """Read a JSON body of another service's interface, or none. Raises RequestTooLarge, InvalidMessage."""
    return schema.parse(await read_bounded(request, max_bytes) or b"{}")


async def read_body(request: Request, schema: type[B]) -> B:
    """Read and validate a JSON body of at most 16 KiB.

    Raises:
        RequestTooLarge, InvalidRequest
    """
    body = await read_bounded(request, MAX_BODY_BYTES)
    try:
        return schema.model_validate_json(body or b"{}", strict=True)
    except ValidationError as error:
        raise invalid(InvalidRequest, error.errors()[0]) from None


async def get_gateway(connection: HTTPConnection) -> Gateway:
    gateway: Gateway = connection.app.state.gateway
    return gateway


AnyGateway = Annotated[Gateway, Depends(get_gateway)]


async def authorize(request: Request, gateway: AnyGateway) -> Client:
    """Raises:
    InvalidRequest, Unauthorized, Forbidden
    """
    return gateway.admission.identify(request)


AnyClient = Annotated[Client, Depends(authorize)]


async def authorize_owner(client: AnyClient) -> Client:
    """Return the client of a request, which may add and change voices. Raises Forbidden."""
    client.check_owner()
    return client


Owner = Annotated[Client, Depends(authorize_owner)]


async def list_voices(gateway: AnyGateway, client: AnyClient) -> VoiceList:
    """Return the voices that the client may use."""
    return gateway.catalogue.voices(client.voices, gateway.voices.added(client.tenant))


ListedVoices = Annotated[VoiceList, Depends(list_voices)]


async def find_voice(voice_id: str, gateway: AnyGateway, client: AnyClient, listed: ListedVoices) -> Voice:
    """Return a voice that the client may use, by its id, its name or an alias. Raises VoiceNotFound."""
    names = (voice_id, dict(gateway.settings.server.voices.voice_aliases).get(voice_id))
    for voice in listed.voices:
        if voice.id in names or voice.name in names:
            return voice
    await gateway.voices.look_up(voice_id, client.tenant)
    with contextlib.suppress(VoiceNotFound):
        record = gateway.voices.get(voice_id, client.tenant)  # temporary, or of another process since
        if not client.voices or record.name in client.voices:
            return added_voice(record)
    known = ", ".join(voice.name for voice in listed.voices)
    raise VoiceNotFound(f"unknown voice {voice_id[:64]!r}; the voices are {known}", field="voice")


FoundVoice = Annotated[Voice, Depends(find_voice)]


async def check_origin(request: Request, gateway: AnyGateway) -> None:
    """Raises:
    InvalidRequest, Forbidden
    """
    gateway.admission.authenticator.check_origin(request.headers)


async def check_metrics_host(request: Request, gateway: AnyGateway) -> None:
    """Raises:
    InvalidRequest, Forbidden
    """
    gateway.admission.authenticator.check_metrics_host(request.headers)


NEEDS_KEY = (*_CREDENTIALS, Depends(authorize))

health = APIRouter(tags=["operation"])  # health probes have any Host and no key


@health.head("/healthz", include_in_schema=False)
@health.get("/healthz", summary="Health of the process", responses=problems(503))
async def healthz(gateway: AnyGateway) -> Health:
    if gateway.has_failed:
        raise HTTPException(HTTPStatus.SERVICE_UNAVAILABLE, "a part of the server has failed; it is shutting down")
    return Health(status="ok", version=__version__)


readiness = APIRouter(tags=["operation"])


@readiness.head("/readyz", include_in_schema=False)
@readiness.get("/readyz", summary="Readiness for speech", responses=problems(400, 403, 503))
async def readyz(gateway: AnyGateway) -> Readiness:
    gateway.availability.check()
    return Readiness(
        status="busy" if gateway.admission.lateness.pace is Pace.LATE else "ready",
        workers=gateway.engine.num_ready,
        devices=[
            schemas.Device(worker=each.worker, device=each.device, state=each.state.value, losses=each.losses)
            for each in gateway.engine.keeper.devices
        ],
        sessions=len(gateway.sessions) + gateway.peers.others.sessions.total(),
        late_ms=round(1000 * gateway.admission.lateness.typical_s, 1),
    )


catalogue = APIRouter(prefix="/v1", tags=["speech"], dependencies=NEEDS_KEY, responses=problems())


@catalogue.get("/models", summary="The loaded model", response_model=ModelList, response_model_exclude_unset=True)
async def models(gateway: AnyGateway) -> JsonObject:
    return gateway.catalogue.models()


@catalogue.get("/voices", summary="Voices", response_model_exclude_unset=True)
async def voices(listed: ListedVoices) -> VoiceList:
    return listed


stream = APIRouter(prefix="/v1", tags=["speech"], dependencies=_CREDENTIALS)


@stream.get(
    "/stream",
    summary="WebSocket; plain HTTP is answered with 426",
    status_code=HTTPStatus.UPGRADE_REQUIRED,
    response_model=Problem,
    response_description="send `Upgrade: websocket`; docs/protocol/native.md describes the messages",
    responses={101: {"description": "the WebSocket is open"}, **problems()},
)
async def upgrade_required() -> None:
    raise HTTPException(
        HTTPStatus.UPGRADE_REQUIRED,
        "this is the address of a WebSocket; see docs/protocol/native.md",
        {"upgrade": "websocket", "connection": "Upgrade"},
    )


metrics = APIRouter(tags=["operation"], responses=problems(400, 403))


@metrics.get("/metrics", summary="Metrics for Prometheus", response_class=Response)
async def prometheus(gateway: AnyGateway) -> Response:
    body = gateway.metrics.exposition(gateway.engine)
    return Response(body, headers={"content-type": CONTENT_TYPE})


class Playground(StaticFiles):
    """The page at ``/``. Browsers revalidate its files on every load, so that an update is visible at once."""

    async def get_response(self, path: str, scope: Scope) -> Response:
        response = await super().get_response(path, {**scope, "method": "GET"})  # an unknown path is 404, not 405
        if scope["method"] not in ("GET", "HEAD"):
            raise HTTPException(HTTPStatus.METHOD_NOT_ALLOWED, headers={"allow": "GET, HEAD"})
        response.headers["cache-control"] = "no-cache"
        response.headers["content-security-policy"] = _CONTENT_SECURITY_POLICY
        response.headers["x-content-type-options"] = "nosniff"
        return response


def mount_playground(app: FastAPI) -> None:
    """Serve the page, if this installation has it, at the paths that no route has.

    Not as a mount: a mount would also answer requests to existing routes with another method.
    """
    for directory in PLAYGROUND_DIRECTORIES:
        if (directory / "index.html").is_file():
            app.router.default = GZipMiddleware(Playground(directory=directory, html=True), compresslevel=6)
            return

    @app.get("/", include_in_schema=False)
    async def no_playground() -> JSONResponse:
        return JSONResponse({"message": "the playground is not part of this installation", "docs": "/docs"})
