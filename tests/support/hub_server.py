"""A Hugging Face hub with one repository: the requests with which its client lists and downloads files."""

from __future__ import annotations

import contextlib
import hashlib
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlsplit

COMMIT = "a" * 40


@contextlib.contextmanager
def hub_of(directory: Path, repository: str) -> Iterator[str]:
    """Serve the files of a directory as a repository. The value is the hub's address, for HF_ENDPOINT."""

    class Handler(BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            self.answer()

        def do_GET(self) -> None:
            if content := self.answer():
                self.wfile.write(content)

        def answer(self) -> bytes:
            path = urlsplit(self.path).path
            file = directory / path.removeprefix(f"/{repository}/resolve/{COMMIT}/")
            if path == f"/api/models/{repository}/revision/main":
                return self.send(json.dumps({"id": repository, "sha": COMMIT, "siblings": []}).encode())
            if path == f"/api/models/{repository}/tree/{COMMIT}":
                return self.send(json.dumps(list_files(directory)).encode())
            if path.startswith(f"/{repository}/resolve/") and file.is_file():
                return self.send(file.read_bytes(), {"ETag": f'"{blob_id(file)}"', "X-Repo-Commit": COMMIT})
            self.send_error(404)
            return b""

        def send(self, content: bytes, headers: dict[str, str] | None = None) -> bytes:
            self.send_response(200)
            for name, value in {"Content-Length": str(len(content)), **(headers or {})}.items():
                self.send_header(name, value)
            self.end_headers()
            return content

        def log_message(self, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


def list_files(directory: Path) -> list[dict[str, object]]:
    files = sorted(path for path in directory.rglob("*") if path.is_file())
    return [
        {
            "type": "file",
            "path": path.relative_to(directory).as_posix(),
            "oid": blob_id(path),
            "size": path.stat().st_size,
        }
        for path in files
    ]


def blob_id(path: Path) -> str:
    return hashlib.sha1(path.read_bytes()).hexdigest()
