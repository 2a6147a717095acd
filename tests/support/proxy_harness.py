"""nginx or Caddy on loopback, with the configuration that is shipped: only ports and files are put in for it."""

from __future__ import annotations

import contextlib
import dataclasses
import re
import socket
import ssl
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
from needed_programs import needed_program

from realtime_tts.bench.server_process import free_port

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
NAME = "tts.example.com"
START_S = 20.0


@dataclasses.dataclass(frozen=True)
class Certificate:
    """Self-signed, for `NAME`."""

    certificate: Path
    key: Path

    def context(self) -> ssl.SSLContext:
        """A client's, that trusts this certificate alone."""
        return ssl.create_default_context(cafile=str(self.certificate))


@dataclasses.dataclass(frozen=True)
class Proxy:
    """A running proxy. The name it serves is `NAME`; its address is 127.0.0.1."""

    directory: Path
    http_port: int
    https_port: int
    certificate: Certificate

    def client(self, server_name: str = NAME) -> Proxied:
        return Proxied(self, server_name)


class Proxied:
    """An HTTPS client that finds `NAME` at the proxy, as a resolver would tell it."""

    def __init__(self, proxy: Proxy, server_name: str) -> None:
        self._proxy, self._server_name = proxy, server_name

    def get(self, path: str, host: str = NAME, **headers: str) -> httpx.Response:
        return self._request("GET", path, {"host": host, **headers})

    def post(self, path: str, files: dict[str, bytes], **headers: str) -> httpx.Response:
        return self._request("POST", path, {"host": NAME, **headers}, files=files)

    def _request(self, method: str, path: str, headers: dict[str, str], **body: Any) -> httpx.Response:
        with httpx.Client(verify=self._proxy.certificate.context(), trust_env=False, timeout=30, http2=False) as http:
            return http.request(
                method,
                f"https://127.0.0.1:{self._proxy.https_port}{path}",
                headers=headers,
                extensions={"sni_hostname": self._server_name},
                **body,
            )


def make_certificate(directory: Path) -> Certificate:
    openssl = needed_program("openssl", "apt-get install openssl")
    certificate = Certificate(directory / "certificate.pem", directory / "key.pem")
    command = [openssl, "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-noenc"]
    command += ["-days", "2", "-subj", f"/CN={NAME}", "-addext", f"subjectAltName=DNS:{NAME}"]
    command += ["-keyout", str(certificate.key), "-out", str(certificate.certificate)]
    subprocess.run(command, check=True, capture_output=True)
    return certificate


def replaced(text: str, *changes: tuple[str, str]) -> str:
    """`text` with each pattern replaced; one that is not there is an error of the test."""
    for pattern, replacement in changes:
        text, count = re.subn(pattern, replacement, text)
        assert count, f"the shipped file has no {pattern}"
    return text


def nginx_command(proxy: Proxy, gateway_port: int) -> list[str]:
    nginx = needed_program("nginx", "apt-get install nginx")
    site = replaced(
        (DEPLOY / "nginx.conf").read_text(encoding="utf-8"),
        (r"listen \[::\]:\d+.*;\n", "\n"),  # not every machine has IPv6
        (r"listen 443", f"listen 127.0.0.1:{proxy.https_port}"),
        (r"listen 80", f"listen 127.0.0.1:{proxy.http_port}"),
        (r"127\.0\.0\.1:8000", f"127.0.0.1:{gateway_port}"),
        (r"/etc/letsencrypt/.*/fullchain\.pem", str(proxy.certificate.certificate)),
        (r"/etc/letsencrypt/.*/privkey\.pem", str(proxy.certificate.key)),
        (r"/var/log/nginx", str(proxy.directory)),
    )
    (proxy.directory / "site.conf").write_text(site, encoding="utf-8")
    paths = "".join(
        f"{name}_temp_path {proxy.directory}/{name};\n" for name in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    main = f"worker_processes 1;\ndaemon off;\npid {proxy.directory}/pid;\nevents {{}}\n"
    main += f"http {{\naccess_log off;\n{paths}include {proxy.directory}/site.conf;\n}}\n"
    (proxy.directory / "nginx.conf").write_text(main, encoding="utf-8")
    return [nginx, "-p", str(proxy.directory), "-c", "nginx.conf", "-e", "stderr"]


def caddy_command(proxy: Proxy, gateway_port: int) -> list[str]:
    caddy = needed_program("caddy", "apt-get install caddy")
    ports = f"\tadmin off\n\thttp_port {proxy.http_port}\n\thttps_port {proxy.https_port}\n"
    ports += "\tdefault_bind 127.0.0.1\n"
    upstream = f"reverse_proxy 127.0.0.1:{gateway_port} {{"
    config = replaced(
        (DEPLOY / "Caddyfile").read_text(encoding="utf-8"),
        (r"(?m)^\{\n", "{\n" + ports),
        (
            rf"(?m)^{re.escape(NAME)} \{{\n",
            f"{NAME} {{\n\ttls {proxy.certificate.certificate} {proxy.certificate.key}\n",
        ),
        # Connections that it keeps to the gateway, which is in this process, would look like leaks.
        (r"reverse_proxy 127\.0\.0\.1:8000 \{\n", f"{upstream}\n\t\ttransport http {{\n\t\t\tkeepalive off\n\t\t}}\n"),
    )
    (proxy.directory / "Caddyfile").write_text(config, encoding="utf-8")
    return [caddy, "run", "--config", str(proxy.directory / "Caddyfile"), "--adapter", "caddyfile"]


COMMANDS: dict[str, Callable[[Proxy, int], list[str]]] = {"nginx": nginx_command, "caddy": caddy_command}


@contextlib.contextmanager
def running_proxy(kind: str, directory: Path, certificate: Certificate, gateway_port: int) -> Iterator[Proxy]:
    proxy = Proxy(directory, free_port(), free_port(), certificate)
    command = COMMANDS[kind](proxy, gateway_port)
    home = {"HOME": str(directory), "XDG_DATA_HOME": str(directory), "XDG_CONFIG_HOME": str(directory)}
    with (directory / "output").open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output, cwd=directory, env=home)
    try:
        wait_for_port(process, proxy.https_port, directory / "output")
        yield proxy
    finally:
        process.terminate()
        process.wait(10)


def wait_for_port(process: subprocess.Popen[bytes], port: int, output: Path) -> None:
    end = time.monotonic() + START_S
    while time.monotonic() < end and process.poll() is None:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            return
        time.sleep(0.02)
    raise AssertionError(f"the proxy does not listen:\n{output.read_text(errors='replace')}")
