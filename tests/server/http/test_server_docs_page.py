"""The page that shows the HTTP interface needs nothing but this server."""

from __future__ import annotations

from html.parser import HTMLParser
from urllib.parse import urljoin, urlsplit

import httpx
import pytest
from gateway_harness import GatewayHarness


class References(HTMLParser):
    """What a page makes a browser load, and whether it has a script in itself."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []
        self.inline_script = ""
        self._in_script = False

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self._in_script = tag == "script"
        self.found += [value for name, value in attributes if name in ("src", "href") and value]

    def handle_data(self, data: str) -> None:
        if self._in_script:
            self.inline_script += data.strip()


def references(page: str) -> References:
    parser = References()
    parser.feed(page)
    return parser


def test_the_page_loads_only_what_this_server_has(gateway: GatewayHarness) -> None:
    with httpx.Client(base_url=gateway.url, trust_env=False, timeout=30) as http:
        page = http.get("/docs")
        assert page.status_code == 200
        found = references(page.text)
        files = [name for name in found.found if not name.startswith("data:")]
        assert {name.rpartition("/")[2] for name in files} == {"swagger-ui.css", "swagger-ui-bundle.js", "start.js"}
        for name in files:
            assert not urlsplit(name).netloc
            answer = http.get(urljoin("/docs", name))
            kind = "css" if name.endswith(".css") else "javascript"
            assert (answer.status_code, kind in answer.headers["content-type"]) == (200, True)
            assert len(answer.content) > 50


def test_the_page_has_a_policy_that_lets_nothing_else_in(gateway: GatewayHarness) -> None:
    page = httpx.get(f"{gateway.url}/docs", trust_env=False, timeout=30)
    assert references(page.text).inline_script == ""
    policy = dict(part.strip().split(" ", 1) for part in page.headers["content-security-policy"].split(";"))
    assert policy["default-src"] == "'none'"
    assert policy["script-src"] == policy["connect-src"] == "'self'"
    assert not any("http" in sources or "*" in sources for sources in policy.values())
    assert policy["frame-ancestors"] == "'none'"
    assert page.headers["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize("path", ["/redoc", "/docs/oauth2-redirect", "/docs/assets/../../core.py", "/docs/assets/"])
def test_no_other_viewer_is_served(gateway: GatewayHarness, path: str) -> None:
    assert httpx.get(gateway.url + path, trust_env=False, timeout=30).status_code == 404
