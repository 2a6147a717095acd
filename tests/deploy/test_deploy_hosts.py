"""Several hosts behind a front: the chart, the compose file and HAProxy's configuration, as far as they agree."""

from __future__ import annotations

import copy
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml
from chart_renderer import render
from needed_programs import needed_program
from proxy_harness import DEPLOY

from realtime_tts.config_loader import load_settings

CHART = DEPLOY / "chart"
MOUNTED = "/usr/local/etc/haproxy"
OLDEST, NEWEST = "1.25", "1.37"  # whose schemas are asked
# Each value that decides what there is, in both ways.
VALUES: dict[str, dict[str, Any]] = {
    "as shipped": {},
    "all": {
        "voicesClaim": "voices",
        "modelClaim": "models",
        "drainSeconds": 40,
        "imagePullSecrets": [{"name": "registry"}],
        "pod": {"runtimeClassName": "nvidia", "nodeSelector": {"gpu": "h200"}, "tolerations": [{"key": "gpu"}]},
        "resources": {"limits": {"nvidia.com/gpu": 1, "memory": "32Gi"}},
        "autoscaling": {"enabled": True, "maxHosts": 8, "metric": "realtime_tts_streams_in_use", "target": "700m"},
    },
    "no policy": {"networkPolicy": False},
}


@pytest.fixture(scope="module")
def objects() -> dict[str, dict[str, Any]]:
    """Kind and name → what is rendered."""
    return named(render(CHART, "tts", VALUES["all"]))


def named(rendered: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    assert len({(item["kind"], item["metadata"]["name"]) for item in rendered}) == len(rendered)
    return {f"{item['kind']}/{item['metadata']['name']}": item for item in rendered}


def pod(objects: dict[str, dict[str, Any]], name: str) -> dict[str, Any]:
    spec: dict[str, Any] = objects[f"Deployment/{name}"]["spec"]["template"]["spec"]
    return spec


def environment(container: dict[str, Any]) -> dict[str, str]:
    return {item["name"]: item["value"] for item in container["env"]}


@pytest.mark.parametrize("version", [OLDEST, NEWEST])
@pytest.mark.parametrize("values", VALUES.values(), ids=VALUES)
def test_kubernetes_knows_each_field(values: dict[str, Any], version: str) -> None:
    for item in render(CHART, "tts", values):
        kubernetes_validate.validate(item, version, strict=True)


def test_a_field_that_kubernetes_does_not_know_is_found() -> None:
    [item, *_] = (item for item in render(CHART, "tts", {}) if item["kind"] == "Deployment")
    wrong = copy.deepcopy(item)
    wrong["spec"]["template"]["spec"]["containers"][0]["redinessProbe"] = {}
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(wrong, NEWEST, strict=True)


@pytest.mark.parametrize("values", VALUES.values(), ids=VALUES)
def test_helm_makes_the_same_of_it(values: dict[str, Any], tmp_path: Path) -> None:
    helm = shutil.which("helm")
    if helm is None:
        pytest.skip("needs helm")
    (tmp_path / "values.yaml").write_text(yaml.safe_dump(values), encoding="utf-8")
    command = [helm, "template", "tts", str(CHART), "-f", str(tmp_path / "values.yaml")]
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    by_helm = [item for item in yaml.safe_load_all(text) if item]
    assert named(by_helm) == named(render(CHART, "tts", values))


def test_each_part_of_the_chart_finds_its_pods(objects: dict[str, dict[str, Any]]) -> None:
    labels = [
        item["spec"]["template"]["metadata"]["labels"] for item in objects.values() if item["kind"] == "Deployment"
    ]
    for name, item in objects.items():
        spec = item.get("spec", {})
        selector = spec.get("selector", spec.get("podSelector"))
        if selector is None:
            continue
        wanted = selector.get("matchLabels", selector).items()
        assert sum(wanted <= given.items() for given in labels) == 1, name
    [scaled] = [item["spec"]["scaleTargetRef"] for item in objects.values() if item["kind"].endswith("Autoscaler")]
    assert f"{scaled['kind']}/{scaled['name']}" in objects


def test_nothing_in_a_pod_can_write_or_become_more_than_it_must(objects: dict[str, dict[str, Any]]) -> None:
    for name in ("tts-hosts", "tts-front"):
        spec = pod(objects, name)
        assert spec["securityContext"]["runAsNonRoot"] is True
        assert spec["automountServiceAccountToken"] is False
        for container in spec["containers"] + spec.get("initContainers", []):
            assert container["securityContext"] == {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            }


def test_no_service_of_the_cluster_becomes_a_setting(objects: dict[str, dict[str, Any]]) -> None:
    """`helm install realtime-tts` has a service whose links would be REALTIME_TTS_PORT=tcp://… and others."""
    for name in ("tts-hosts", "tts-front"):
        assert pod(objects, name)["enableServiceLinks"] is False


def test_a_deployment_that_scales_by_streams_sets_no_replicas(objects: dict[str, dict[str, Any]]) -> None:
    assert "replicas" not in objects["Deployment/tts-hosts"]["spec"]
    as_shipped = named(render(CHART, "tts", {}))
    assert as_shipped["Deployment/tts-hosts"]["spec"]["replicas"] == 2
    assert "HorizontalPodAutoscaler/tts-hosts" not in as_shipped


def test_ports_that_are_let_in_and_asked_are_there(objects: dict[str, dict[str, Any]]) -> None:
    [server] = pod(objects, "tts-hosts")["containers"]
    there = {port["name"] for port in server["ports"]}
    rules = objects["NetworkPolicy/tts-hosts"]["spec"]["ingress"]
    assert {port["port"] for rule in rules for port in rule["ports"]} == there
    assert {server[f"{probe}Probe"]["httpGet"]["port"] for probe in ("startup", "readiness", "liveness")} <= there


def test_figures_are_for_the_charts_namespace_and_those_that_are_named() -> None:
    monitoring = [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}}]
    for values, expected in (
        ({}, [[{"podSelector": {}}]]),
        ({"metricsFrom": monitoring}, [monitoring]),
        ({"metricsFrom": []}, []),  # an empty `from` would admit every client
    ):
        policy = named(render(CHART, "tts", values))["NetworkPolicy/tts-hosts"]
        rules = [rule for rule in policy["spec"]["ingress"] if rule["ports"] == [{"port": "metrics"}]]
        assert [rule["from"] for rule in rules] == expected
        kubernetes_validate.validate(policy, NEWEST, strict=True)


def test_a_hosts_settings_are_settings(objects: dict[str, dict[str, Any]]) -> None:
    [server] = pod(objects, "tts-hosts")["containers"]
    settings = load_settings(env=environment(server))
    ports = {port["name"]: port["containerPort"] for port in server["ports"]}
    assert ports == {"http": settings.server.port, "metrics": settings.server.metrics_port}
    mounts = [mount["mountPath"] for mount in server["volumeMounts"]]
    for path in (settings.server.voices.voices_dir, settings.server.access.token_secret_file):
        assert any(path.startswith(mount + "/") for mount in mounts), path


def test_a_host_has_time_to_let_speech_end(objects: dict[str, dict[str, Any]]) -> None:
    hosts, front = pod(objects, "tts-hosts"), pod(objects, "tts-front")
    drain_s = load_settings(env=environment(hosts["containers"][0])).server.timeouts.drain_timeout_s
    assert drain_s == 40
    assert hosts["terminationGracePeriodSeconds"] > drain_s
    [haproxy] = front["containers"]
    [before_s] = map(float, haproxy["lifecycle"]["preStop"]["exec"]["command"][1:])
    hard_stop_s = float(environment(haproxy)["DRAIN_S"])
    assert front["terminationGracePeriodSeconds"] > before_s + hard_stop_s > before_s + drain_s


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
    assert {volume["name"] for volume in spec["volumes"]} == {"state", "tmp", "keys"}


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
    shipped = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))["front"]["image"]
    assert front["image"] == f"${{HAPROXY_IMAGE:-{shipped}}}"
    (base,) = re.findall(r"ARG PYTHON_IMAGE=(\S+)", (DEPLOY / "Containerfile").read_text(encoding="utf-8"))
    assert host["build"]["args"]["PYTHON_IMAGE"] == f"${{PYTHON_IMAGE:-{base}}}"
    assert front["environment"]["HOST_PORT"] == str(settings.server.port)
    assert int(host["stop_grace_period"].removesuffix("s")) > settings.server.timeouts.drain_timeout_s
    assert float(front["environment"]["DRAIN_S"]) < float(front["stop_grace_period"].removesuffix("s"))
    for service in services.values():
        assert service["read_only"]
        assert service["cap_drop"] == ["ALL"]
        for volume in service["volumes"]:
            source, target = volume.split(":")[:2]
            assert target.startswith(("/usr/local/etc/haproxy/", "/etc/realtime-tts/", "/var/lib/realtime-tts"))
            if source.startswith("./chart/"):
                assert (DEPLOY / source).is_file()


def test_secrets_that_the_docs_let_an_operator_make_here_are_not_committed(tmp_path: Path) -> None:
    services = yaml.safe_load((DEPLOY / "compose.yaml").read_text(encoding="utf-8"))["services"]
    sources = [volume.split(":")[0] for volume in services["host"]["volumes"]]
    secrets = [f"deploy/{source[2:]}" for source in sources if source.startswith("./")]
    secrets += ["keys.txt", "hashes.txt", "token-secret.txt"]  # docs/operate/deploy.md, docs/operate/operation.md
    git = needed_program("git", "apt-get install git")
    subprocess.run([git, "init", "-q", str(tmp_path)], check=True)
    shutil.copy(DEPLOY.parent / ".gitignore", tmp_path)
    told = subprocess.run([git, "check-ignore", *secrets], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert told.stdout.split() == secrets
    told = subprocess.run([git, "check-ignore", "deploy/compose.yaml"], cwd=tmp_path, capture_output=True, check=False)
    assert told.returncode == 1
