"""Plain HTTP routes: health, readiness, metrics, models and voices, tokens, and the playground's files."""

from __future__ import annotations

from http import HTTPStatus
from pathlib import Path
from typing import Annotated, Any, TypeVar

from fastapi import APIRouter, Depends, FastAPI, HTTPException, Request, Response, Security
from fastapi.responses import JSONResponse
from fastapi.security import APIKeyQuery, HTTPBearer
from fastapi.staticfiles import StaticFiles
from pydantic import BaseModel, ValidationError
from starlette.types import Scope

from realtime_tts import __version__
from realtime_tts.errors import Forbidden, RequestTooLarge
from realtime_tts.server.admission.client import Client
from realtime_tts.server.admission.lateness import Pace
from realtime_tts.server.gateway import Gateway
from realtime_tts.server.http import schemas
from realtime_tts.server.http.browser_tokens import make_token
from realtime_tts.server.http.problems import invalid_body
from realtime_tts.server.http.schemas import Health, ModelList, Problem, Readiness, VoiceList
from realtime_tts.server.metrics import CONTENT_TYPE

B = TypeVar("B", bound=BaseModel)

_MAX_BODY_BYTES = 16 * 1024
_PACKAGE = Path(__file__).resolve().parents[2]
# In a wheel the playground lies inside the package, in a checkout beside it.
PLAYGROUND_DIRECTORIES = (_PACKAGE / "playground", _PACKAGE.parent / "clients" / "browser")
_CONTENT_SECURITY_POLICY = (
    "default-src 'self'; connect-src 'self' ws: wss:; media-src 'self' blob:; worker-src 'self' blob:; "
    "img-src 'self' data:; style-src 'self' 'unsafe-inline'; frame-ancestors 'none'; base-uri 'none'"
)

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


def problems(**descriptions: str) -> dict[int | str, dict[str, Any]]:
    """Return the documented errors of a route: `problems(unauthorized="…")`."""
    return {
        HTTPStatus[name.upper()].value: {"model": Problem, "description": description}
        for name, description in descriptions.items()
    }


async def read_bounded(request: Request, max_bytes: int) -> bytes:
    """Read a body of limited size. FastAPI itself would read all of it, and before the key is checked.

    Raises:
        RequestTooLarge: the body has more than `max_bytes` bytes.
    """
    body = bytearray()
    async for part in request.stream():
        body += part
        if len(body) > max_bytes:
            raise RequestTooLarge(f"the body has more than {max_bytes} bytes")
    return bytes(body)


def is_form(request: Request) -> bool:
    return request.headers.get("content-type", "").startswith("multipart/form-data")


async def read_body(request: Request, schema: type[B]) -> B:
    """Read and validate a JSON body of at most 16 KiB.

    Raises:
        RequestTooLarge, InvalidRequest
    """
    body = await read_bounded(request, _MAX_BODY_BYTES)
    try:
        return schema.model_validate_json(body or b"{}", strict=True)
    except ValidationError as error:
        raise invalid_body(error.errors()[0]) from None


_UNAUTHORIZED = "the API key is missing or not active; only for servers with keys"
_BAD_HOST = "a malformed Host or Origin header"
_FORBIDDEN = "a page of another origin, or a forbidden host name"


def get_gateway(request: Request) -> Gateway:
    gateway: Gateway = request.app.state.gateway
    return gateway


def authorize(request: Request) -> Client:
    """Raises:
    InvalidRequest, Unauthorized, Forbidden
    """
    return get_gateway(request).admission.identify(request)


def authorize_owner(request: Request) -> Client:
    """Return the client of a request, which may add and change voices.

    Raises:
        InvalidRequest, Unauthorized, Forbidden
    """
    client = authorize(request)
    client.check_owner()
    return client


Owner = Annotated[Client, Depends(authorize_owner)]


def check_origin(request: Request) -> None:
    """Raises:
    InvalidRequest, Forbidden
    """
    get_gateway(request).admission.authenticator.check_origin(request.headers)


def check_metrics_host(request: Request) -> None:
    """Raises:
    InvalidRequest, Forbidden
    """
    get_gateway(request).admission.authenticator.check_metrics_host(request.headers)


NEEDS_KEY = (*_CREDENTIALS, Depends(authorize))
UNAUTHORIZED = problems(unauthorized=_UNAUTHORIZED)

health = APIRouter(tags=["operation"])  # health probes have any Host and no key


@health.head("/healthz", include_in_schema=False)
@health.get(
    "/healthz",
    summary="Health of the process",
    responses=problems(service_unavailable="a part of the server has failed"),
)
async def healthz(request: Request) -> Health:
    if get_gateway(request).has_failed:
        raise HTTPException(HTTPStatus.SERVICE_UNAVAILABLE, "a part of the server has failed; it is shutting down")
    return Health(status="ok", version=__version__)


readiness = APIRouter(tags=["operation"])


@readiness.head("/readyz", include_in_schema=False)
@readiness.get(
    "/readyz",
    summary="Readiness for speech",
    responses=problems(bad_request=_BAD_HOST, forbidden=_FORBIDDEN, service_unavailable="not ready"),
)
async def readyz(request: Request) -> Readiness:
    gateway = get_gateway(request)
    gateway.availability.check()
    return Readiness(
        status="busy" if gateway.admission.lateness.pace is Pace.LATE else "ready",
        workers=gateway.engine.num_ready,
        devices=[
            schemas.Device(worker=each.worker, device=each.device, state=each.state.value, losses=each.losses)
            for each in gateway.engine.devices
        ],
        sessions=gateway.num_sessions,
        late_ms=round(1000 * gateway.admission.lateness.typical_s, 1),
    )


catalogue = APIRouter(
    prefix="/v1",
    tags=["speech"],
    dependencies=NEEDS_KEY,
    responses=problems(
        bad_request=_BAD_HOST,
        unauthorized=_UNAUTHORIZED,
        forbidden=_FORBIDDEN,
        service_unavailable="the model is still being loaded",
    ),
)


@catalogue.get("/models", summary="The loaded model", response_model=ModelList, response_model_exclude_unset=True)
async def models(request: Request) -> dict[str, Any]:
    return get_gateway(request).catalogue.models()


@catalogue.get("/voices", summary="Voices", response_model=VoiceList, response_model_exclude_unset=True)
async def voices(request: Request, client: Annotated[Client, Depends(authorize)]) -> dict[str, Any]:
    gateway = get_gateway(request)
    return gateway.catalogue.voices(client.voices, gateway.voices.added(client.tenant))


tokens = APIRouter(prefix="/v1", tags=["operation"], dependencies=NEEDS_KEY)


@tokens.post(
    "/tokens",
    summary="Create a short-lived token for a browser's page",
    status_code=HTTPStatus.CREATED,
    openapi_extra={
        "requestBody": {"content": {"application/json": {"schema": schemas.TokenRequest.model_json_schema()}}}
    },
    responses=problems(
        bad_request="an invalid field",
        unauthorized=_UNAUTHORIZED,
        forbidden="requested with a token, or no keys are configured",
        not_found="unknown voice",
        request_entity_too_large="a body of more than 16 KiB",
    ),
)
async def create_token(
    request: Request, response: Response, client: Annotated[Client, Depends(authorize)]
) -> schemas.Token:
    if client.token or not client.tenant:
        raise Forbidden("tokens are made with an API key, not with a token, and not by a server without keys")
    return make_token(get_gateway(request), client, await read_body(request, schemas.TokenRequest), response)


stream = APIRouter(prefix="/v1", tags=["speech"], dependencies=_CREDENTIALS)


@stream.get(
    "/stream",
    summary="WebSocket; plain HTTP is answered with 426",
    status_code=HTTPStatus.UPGRADE_REQUIRED,
    response_model=Problem,
    response_description="send `Upgrade: websocket`; docs/protocol/native.md describes the messages",
    responses={
        101: {"description": "the WebSocket is open"},
        **problems(
            bad_request=_BAD_HOST,
            unauthorized=_UNAUTHORIZED,
            forbidden=_FORBIDDEN,
            too_many_requests="the key has reached its limit of sessions",
            service_unavailable="overloaded, not ready, or shutting down",
        ),
    },
)
async def upgrade_required() -> None:
    raise HTTPException(
        HTTPStatus.UPGRADE_REQUIRED,
        "this is the address of a WebSocket; see docs/protocol/native.md",
        {"upgrade": "websocket", "connection": "Upgrade"},
    )


metrics = APIRouter(tags=["operation"], responses=problems(bad_request=_BAD_HOST, forbidden=_FORBIDDEN))


@metrics.get("/metrics", summary="Metrics for Prometheus", response_class=Response)
async def prometheus(request: Request) -> Response:
    gateway = get_gateway(request)
    body = gateway.metrics.exposition(gateway.engine)
    return Response(body, headers={"content-type": CONTENT_TYPE})


class Playground(StaticFiles):
    """The page at ``/``. Browsers revalidate its files on every load, so that an update is visible at once."""

    async def get_response(self, path: str, scope: Scope) -> Response:
        if scope["method"] not in ("GET", "HEAD") and self.lookup_path(path)[1] is None:
            raise HTTPException(HTTPStatus.NOT_FOUND)  # an unknown path is 404, not 405
        response = await super().get_response(path, scope)
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
            app.router.default = Playground(directory=directory, html=True)
            return

    @app.get("/", include_in_schema=False)
    async def no_playground() -> JSONResponse:
        return JSONResponse({"message": "the playground is not part of this installation", "docs": "/docs"})
