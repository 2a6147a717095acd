"""Several hosts behind a front: the chart, the compose file and HAProxy's configuration, as far as they agree."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from chart_renderer import render
from proxy_harness import DEPLOY

from realtime_tts.config_loader import load_settings

CHART = DEPLOY / "chart"
MOUNTED = "/usr/local/etc/haproxy"


@pytest.fixture(scope="module")
def objects() -> dict[str, dict[str, Any]]:
    """Kind and name → what is rendered."""
    rendered = render(CHART, "tts", {"voicesClaim": "voices", "drainSeconds": 40})
    return {f"{item['kind']}/{item['metadata']['name']}": item for item in rendered}


def pod(objects: dict[str, dict[str, Any]], name: str) -> dict[str, Any]:
    spec: dict[str, Any] = objects[f"Deployment/{name}"]["spec"]["template"]["spec"]
    return spec


def environment(container: dict[str, Any]) -> dict[str, str]:
    return {item["name"]: item["value"] for item in container["env"]}


def test_each_part_of_the_chart_finds_its_pods(objects: dict[str, dict[str, Any]]) -> None:
    labels = [
        item["spec"]["template"]["metadata"]["labels"] for item in objects.values() if item["kind"] == "Deployment"
    ]
    for name, item in objects.items():
        selector = item.get("spec", {}).get("selector")
        if selector is None:
            continue
        wanted = selector.get("matchLabels", selector).items()
        assert sum(wanted <= given.items() for given in labels) == 1, name


def test_a_hosts_settings_are_settings(objects: dict[str, dict[str, Any]]) -> None:
    [server] = pod(objects, "tts-hosts")["containers"]
    settings = load_settings(env=environment(server))
    ports = {port["name"]: port["containerPort"] for port in server["ports"]}
    assert ports == {"http": settings.server.port, "metrics": settings.server.metrics_port}
    mounts = [mount["mountPath"] for mount in server["volumeMounts"]]
    for path in (settings.server.voices_dir, settings.server.token_secret_file):
        assert any(path.startswith(mount + "/") for mount in mounts), path


def test_a_host_has_time_to_let_speech_end(objects: dict[str, dict[str, Any]]) -> None:
    hosts, front = pod(objects, "tts-hosts"), pod(objects, "tts-front")
    drain_s = load_settings(env=environment(hosts["containers"][0])).server.drain_timeout_s
    assert drain_s == 40
    assert hosts["terminationGracePeriodSeconds"] > drain_s
    assert front["terminationGracePeriodSeconds"] > drain_s


def test_volumes_that_are_mounted_are_there(objects: dict[str, dict[str, Any]]) -> None:
    for name in ("tts-hosts", "tts-front"):
        spec = pod(objects, name)
        there = {volume["name"] for volume in spec["volumes"]}
        containers = spec["containers"] + spec.get("initContainers", [])
        assert {mount["name"] for one in containers for mount in one["volumeMounts"]} == there


def test_without_voices_there_is_nothing_to_copy() -> None:
    rendered = {item["metadata"]["name"]: item for item in render(CHART, "tts", {}) if item["kind"] == "Deployment"}
    spec = rendered["tts-hosts"]["spec"]["template"]["spec"]
    assert "initContainers" not in spec
    assert {volume["name"] for volume in spec["volumes"]} == {"state", "keys"}


def test_the_front_is_told_where_the_hosts_are(objects: dict[str, dict[str, Any]]) -> None:
    [haproxy] = pod(objects, "tts-front")["containers"]
    told = environment(haproxy)
    hosts = objects[f"Service/{told['HOSTS']}"]["spec"]
    assert hosts["clusterIP"] == "None"
    assert [str(port["port"]) for port in hosts["ports"]] == [told["HOST_PORT"]]
    assert [str(port["containerPort"]) for port in haproxy["ports"]] == [told["PORT"]]
    configuration = objects["ConfigMap/tts-front"]["data"]["haproxy.cfg"]
    assert configuration == (CHART / "haproxy.cfg").read_text(encoding="utf-8")
    assert [mount["mountPath"] for mount in haproxy["volumeMounts"]] == [MOUNTED]


def test_the_compose_file_says_the_same() -> None:
    services = yaml.safe_load((DEPLOY / "compose.yaml").read_text(encoding="utf-8"))["services"]
    front, host = services["front"], services["host"]
    settings = load_settings(env=host["environment"])
    assert front["environment"]["HOSTS"] in services
    assert front["environment"]["HOST_PORT"] == str(settings.server.port)
    assert int(host["stop_grace_period"].removesuffix("s")) > settings.server.drain_timeout_s
    for service in services.values():
        for volume in service["volumes"]:
            source, target = volume.split(":")[:2]
            assert target.startswith(("/usr/local/etc/haproxy/", "/etc/realtime-tts/", "/var/lib/realtime-tts"))
            if source.startswith("./chart/"):
                assert (DEPLOY / source).is_file()
