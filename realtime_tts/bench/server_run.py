"""Full bench of a server: one stream alone, then the highest load that holds, and its limit."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from typing import Any

from realtime_tts.bench.capacity import CapacityPlan, measure_capacity
from realtime_tts.bench.limits import Usage, name_limit
from realtime_tts.bench.server_load import ServerLoad, Target
from realtime_tts.bench.usage import text_getter
from realtime_tts.errors import ConfigError

_NUM_ALONE = 20


def measure_server(
    target: Target, plan: CapacityPlan, progress: Callable[[str], None] = lambda what: None
) -> dict[str, Any]:
    """Run `measure_capacity` and add `alone_ms` (times to first packet of one stream at a time, for each run), the
    utilisation of all parts in each trial, and `limit`: the saturated part in the lowest load that did not hold.

    Raises:
        ConfigError: no server answers. EngineError: it does not speak, or a client failed.
    """
    with ServerLoad(target) as load:
        progress("one caller")
        load.measure_turn()
        alone_ms = [load.alone(_NUM_ALONE) for _ in range(plan.runs)]
        result = measure_capacity(load, plan, progress, extra=lambda: _told(load))
    failed = [trial for trial in result["trials"] if not trial["held"]]
    limit = ""
    if failed:
        first = min(failed, key=lambda trial: trial["offered"])
        limit = name_limit(Usage(**first["usage"]), first["errors"])
    return {**result, "alone_ms": alone_ms, "limit": limit, "num_clients": target.num_clients}


def _told(load: ServerLoad) -> dict[str, Any]:
    assert load.account is not None
    return {"usage": dataclasses.asdict(load.account.usage)}


def describe_server(target: Target) -> dict[str, Any]:
    """Return the description of the server from `/v1/models`, for the record.

    Raises:
        ConfigError: no server answers.
    """
    try:
        model = json.loads(text_getter(target.url, target.api_key)("/v1/models"))["data"][0]
    except (OSError, ValueError, KeyError, IndexError) as error:
        raise ConfigError(f"no server answers at {target.url}: {error}", field="url") from error
    return {
        "model": model["id"],
        "device": model["device"],
        "device_name": model["device"],
        "dtype": model["dtype"],
        "backend": model["attention_backend"],
        "default_steps": model["default_steps"],
        "default_cfg": model["default_cfg"],
        "session": target.start,
        "watched": target.watched is not None,
    }
