"""Headless Chromium under a driver: what all tests that look at a page share."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from selenium import webdriver
from selenium.webdriver.chrome.options import Options
from selenium.webdriver.chrome.service import Service

FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    # One process for all pages and none in reserve: else each test starts two, at 0.2 s of processor time.
    "--renderer-process-limit=1",
    "--disable-site-isolation-trials",
    "--no-proxy-server",
    "--host-resolver-rules=MAP lan.test 127.0.0.1",  # a name that is no secure context over http, as a LAN address
)
LEFT_OUT = "SpareRendererForSitePerProcess"


def _programs() -> tuple[str, str]:
    """Paths of Chromium and its driver. Where CI promises them, their absence is a failure, not a skip."""
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    driver = shutil.which("chromedriver")
    if chromium is None or driver is None:
        reason = "needs Chromium and its driver: apt-get install chromium chromium-driver"
        if os.environ.get("CI", "").lower() in ("1", "true", "yes"):
            pytest.fail(reason, pytrace=False)
        pytest.skip(reason)
    return chromium, driver


@contextlib.contextmanager
def running_chromium(profile: Path, *flags: str, without: tuple[str, ...] = ()) -> Iterator[webdriver.Chrome]:
    """With flags beyond those that all tests need, and without these features."""
    binary, driver_binary = _programs()
    options = Options()
    options.binary_location = binary
    left_out = ",".join((LEFT_OUT, *without))
    for flag in (*FLAGS, *flags, f"--disable-features={left_out}", f"--user-data-dir={profile}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(driver_binary))
    try:
        driver.set_script_timeout(30)
        yield driver
    finally:
        driver.quit()
