"""The interface's page in a browser: it renders, from this server alone."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import urlsplit

import httpx
import pytest
from gateway_harness import GatewayHarness
from selenium.webdriver import Chrome
from selenium.webdriver.support.ui import WebDriverWait

pytestmark = [pytest.mark.browser, pytest.mark.timeout(120)]

LOADED = "return performance.getEntriesByType('resource').map((entry) => entry.name)"


@pytest.fixture
def server() -> Iterator[GatewayHarness]:
    with GatewayHarness() as harness:
        yield harness


@pytest.mark.slow
def test_the_page_renders_and_tries_an_address_out(chromium: Chrome, server: GatewayHarness) -> None:
    wait = WebDriverWait(chromium, 30)
    chromium.get_log("browser")  # of the page before
    chromium.get(f"{server.url}/docs")
    described = httpx.get(f"{server.url}/openapi.json").json()["paths"].values()
    num_operations = sum(map(len, described))
    wait.until(lambda driver: len(driver.find_elements("css selector", ".opblock")) == num_operations)
    shown = [element.text for element in chromium.find_elements("css selector", ".opblock-summary-path")]
    assert {"/healthz", "/v1/models", "/v1/stream"} <= {path.replace("\u200b", "") for path in shown}
    assert chromium.find_element("css selector", ".btn.authorize").is_displayed()
    chromium.find_element("css selector", "[id$='healthz_healthz_get'] button").click()
    for button in (".try-out__btn", ".execute"):
        wait.until(lambda driver, name=button: driver.find_element("css selector", name)).click()
    body = ".live-responses-table .response .highlight-code"
    wait.until(lambda driver: '"status": "ok"' in driver.find_element("css selector", body).text)
    hosts = {urlsplit(address).netloc for address in chromium.execute_script(LOADED)}
    errors = [entry for entry in chromium.get_log("browser") if entry["level"] == "SEVERE"]
    chromium.get("about:blank")
    assert hosts == {urlsplit(server.url).netloc}
    assert errors == []
