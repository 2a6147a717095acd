"""The whole bench of a server: one caller alone, then the highest load that holds, and what its limit is."""

from __future__ import annotations

import dataclasses
import json
import urllib.request
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

from realtime_tts.bench.capacity import CapacityPlan, measure_capacity
from realtime_tts.bench.limits import Usage, name_limit
from realtime_tts.bench.server_load import ServerLoad, Target

_NUM_ALONE = 20


def measure_server(
    target: Target, plan: CapacityPlan, progress: Callable[[str], None] = lambda what: None
) -> dict[str, Any]:
    """As `measure_capacity`; also `alone_ms`, of one caller the time to each first packet in each run, how busy all
    parts were in each trial, and `limit`: what was full in the lowest load that did not hold.

    Raises:
        ConfigError: no server answers. EngineError: it does not speak, or a client failed.
    """
    with ServerLoad(target) as load:
        progress("one caller")
        load.measure_turn()
        alone_ms = [load.alone(_NUM_ALONE) for _ in range(plan.runs)]
        result = measure_capacity(load, plan, progress, extra=lambda: {"usage": dataclasses.asdict(load.usage)})
    failed = [trial for trial in result["trials"] if not trial["held"]]
    limit = ""
    if failed:
        first = min(failed, key=lambda trial: trial["offered"])
        limit = name_limit(Usage(**first["usage"]), first["errors"])
    return {**result, "alone_ms": alone_ms, "limit": limit, "num_clients": target.num_clients}


def describe_server(target: Target) -> dict[str, Any]:
    """What `/v1/models` says of it, for the record."""
    parts = urlsplit(target.url)
    address = f"{'https' if parts.scheme == 'wss' else 'http'}://{parts.netloc}/v1/models"
    headers = {"Authorization": f"Bearer {target.api_key}"} if target.api_key else {}
    with urllib.request.urlopen(urllib.request.Request(address, headers=headers), timeout=10) as response:
        model = json.load(response)["data"][0]
    return {
        "model": model["id"],
        "device": model["device"],
        "device_name": model["device"],
        "dtype": model["dtype"],
        "backend": model["attention_backend"],
        "default_steps": model["default_steps"],
        "default_cfg": model["default_cfg"],
        "session": target.start,
        "ours": target.server is not None,
        "ready_s": target.server.ready_s if target.server else None,
    }
