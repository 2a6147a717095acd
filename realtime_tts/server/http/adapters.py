"""LoRA adapters over HTTP: list, load from the server's directory, unload."""

from __future__ import annotations

from http import HTTPStatus

from fastapi import APIRouter, Request

from realtime_tts.contract import frames
from realtime_tts.server.http import schemas
from realtime_tts.server.http.routes import NEEDS_KEY, AnyGateway, Owner, problems, read_body, takes
from realtime_tts.server.logs import log_event

adapters = APIRouter(prefix="/v1/adapters", tags=["adapters"], dependencies=NEEDS_KEY, responses=problems())


@adapters.get("", summary="Loaded adapters")
async def list_adapters(gateway: AnyGateway) -> schemas.AdapterList:
    return schemas.AdapterList(adapters=[_described(adapter) for adapter in gateway.adapters.loaded.values()])


@adapters.post(
    "",
    summary="Load an adapter",
    status_code=HTTPStatus.CREATED,
    openapi_extra=takes(schemas.AdapterName),
)
async def load_adapter(request: Request, gateway: AnyGateway, client: Owner) -> schemas.Adapter:
    """Load the adapter in the directory of this name in the server's `adapters_dir` on every worker."""
    wanted = await read_body(request, schemas.AdapterName)
    await gateway.availability.load()
    loaded = await gateway.adapters.load_by_name(wanted.name)
    log_event("adapter_loaded", adapter=loaded.name, key=client.tenant or None)
    return _described(loaded)


@adapters.delete("/{name}", summary="Unload an adapter", status_code=HTTPStatus.NO_CONTENT)
async def unload_adapter(gateway: AnyGateway, name: str, client: Owner) -> None:
    """Speech that is running with it ends with `adapter_not_found`."""
    await gateway.adapters.unload_by_name(name)
    log_event("adapter_unloaded", adapter=name, key=client.tenant or None)


def _described(adapter: frames.AdapterAdded) -> schemas.Adapter:
    return schemas.Adapter(name=adapter.name, rank=adapter.rank, digest=adapter.digest)
