"""`/docs`: interactive documentation of the HTTP interface, without a CDN and without inline scripts."""

from __future__ import annotations

from fastapi import FastAPI, Response
from fastapi.responses import HTMLResponse, JSONResponse
from fastapi.staticfiles import StaticFiles

# URLs are relative, so that the page works behind a proxy that adds a path prefix.
_PAGE = """\
<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>realtime-tts: HTTP interface</title>
<link rel="icon" href="data:,">
<link rel="stylesheet" href="docs/assets/swagger-ui.css">
</head>
<body>
<div id="interface"></div>
<script src="docs/assets/swagger-ui-bundle.js"></script>
<script src="docs/start.js"></script>
</body>
</html>
"""
_START = """\
SwaggerUIBundle({ url: "openapi.json", dom_id: "#interface", deepLinking: true, validatorUrl: null });
"""
_HEADERS = {
    "cache-control": "no-cache",
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; "
        "connect-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
    ),
    "x-content-type-options": "nosniff",
}


def mount_docs(app: FastAPI) -> None:
    """Serve the page for `app`, which must have been made with `docs_url=None` and `openapi_url=None`."""

    @app.get("/docs", include_in_schema=False)
    async def page() -> HTMLResponse:
        return HTMLResponse(_PAGE, headers=_HEADERS)

    @app.get("/docs/start.js", include_in_schema=False)
    async def start() -> Response:
        return Response(_START, media_type="text/javascript", headers=_HEADERS)

    @app.get("/openapi.json", include_in_schema=False)
    def schema() -> JSONResponse:  # in a thread: the first call takes 50 ms
        return JSONResponse(app.openapi())

    # The package has Swagger UI's files; its code is not imported.
    app.mount("/docs/assets", StaticFiles(packages=[("fastapi_offline", "static")]), name="docs assets")
