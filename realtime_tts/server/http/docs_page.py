"""`/docs`: interactive documentation of the HTTP interface, without a CDN and without inline scripts."""

from __future__ import annotations

from pathlib import Path

from fastapi import FastAPI
from fastapi.responses import FileResponse, JSONResponse
from fastapi.staticfiles import StaticFiles

# URLs in the page are relative, so that it works behind a proxy that adds a path prefix.
_PAGE = Path(__file__).parent / "docs" / "index.html"
_HEADERS = {
    "cache-control": "no-cache",
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; "
        "connect-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
    ),
    "x-content-type-options": "nosniff",
}


def mount_docs(app: FastAPI) -> None:
    """Serve the page for `app`, which must have been made with `openapi_url=None`."""

    @app.get("/docs", include_in_schema=False)
    async def page() -> FileResponse:
        return FileResponse(_PAGE, headers=_HEADERS)

    @app.get("/openapi.json", include_in_schema=False)
    def schema() -> JSONResponse:  # in a thread: the first call takes 50 ms
        return JSONResponse(app.openapi())

    # The package `fastapi_offline` has Swagger UI's files; its code is not imported.
    files = StaticFiles(directory=_PAGE.parent, packages=[("fastapi_offline", "static")])
    app.mount("/docs/assets", files, name="docs assets")
