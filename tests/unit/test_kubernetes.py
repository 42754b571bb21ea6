"""The manifest for Kubernetes: valid by the schemas of Kubernetes and KEDA, and true to images, settings and keys of Redis."""

import re
from pathlib import Path
from typing import Any

import jsonschema_rs
import kubernetes_validate
import pytest
import yaml

from cluster_serving.client import keys
from cluster_serving.client.servers.config.sources import ENVIRON_PREFIX
from cluster_serving.frontend.config.settings import FrontendConfig
from cluster_serving.node.config.loading import load_config

ROOT = Path(__file__).parents[2]
OLDEST, NEWEST = "1.25", "1.35"
NAME = {
    "type": "object",
    "properties": {"name": {"type": "string"}},
    "required": ["name"],
    "additionalProperties": False,
}
SCALED_OBJECT = {
    "scaleTargetRef": NAME,
    "minReplicaCount": {"type": "integer", "minimum": 0},
    "maxReplicaCount": {"type": "integer", "minimum": 1},
    "pollingInterval": {"type": "integer", "minimum": 1},
    "cooldownPeriod": {"type": "integer", "minimum": 0},
    "triggers": {
        "type": "array",
        "minItems": 1,
        "items": {
            "type": "object",
            "properties": {
                "type": {"const": "redis-streams"},
                # With consumerGroup KEDA counts something else. All values are texts.
                "metadata": {
                    "type": "object",
                    "properties": {
                        "address": {"type": "string"},
                        "stream": {"type": "string"},
                        "streamLength": {"type": "string", "pattern": "^[1-9][0-9]*$"},
                    },
                    "required": ["address", "stream", "streamLength"],
                    "additionalProperties": False,
                },
                "authenticationRef": NAME,
            },
            "required": ["type", "metadata"],
            "additionalProperties": False,
        },
    },
    "advanced": {
        "type": "object",
        "properties": {
            "horizontalPodAutoscalerConfig": {
                "type": "object",
                "properties": {"behavior": {"type": "object"}},
                "additionalProperties": False,
            }
        },
        "additionalProperties": False,
    },
}
"""`spec` of https://keda.sh/docs/latest/reference/scaledobject-spec/, as far as it is used."""
SECRET_TARGET = {
    "secretTargetRef": {
        "type": "array",
        "items": {
            "type": "object",
            "properties": {key: {"type": "string"} for key in ("parameter", "name", "key")},
            "required": ["parameter", "name", "key"],
            "additionalProperties": False,
        },
    }
}


@pytest.fixture(scope="module")
def objects() -> dict[tuple[str, str], dict[str, Any]]:
    """The objects of the manifest, by kind and name."""
    found = yaml.safe_load_all((ROOT / "docs" / "examples" / "kubernetes.yaml").read_text())
    return {(each["kind"], each["metadata"]["name"]): each for each in found}


def container(objects: dict[tuple[str, str], dict[str, Any]], name: str) -> dict[str, Any]:
    (found,) = objects["Deployment", name]["spec"]["template"]["spec"]["containers"]
    return dict(found)


@pytest.mark.parametrize("version", [OLDEST, NEWEST])
def test_objects_are_valid(objects: dict[tuple[str, str], dict[str, Any]], version: str) -> None:
    for each in objects.values():
        if each["apiVersion"] != "keda.sh/v1alpha1":
            kubernetes_validate.validate(each, version, strict=True)


def test_objects_of_keda_are_valid(objects: dict[tuple[str, str], dict[str, Any]]) -> None:
    scaled, secret = objects["ScaledObject", "serving-node"], objects["TriggerAuthentication", "serving-redis"]
    behavior = scaled["spec"]["advanced"]["horizontalPodAutoscalerConfig"]["behavior"]
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "serving-node"}
    scaler = {"scaleTargetRef": target, "maxReplicas": 1, "behavior": behavior}
    autoscaler = {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": "a"},
        "spec": scaler,
    }

    for spec, schema in ((scaled["spec"], SCALED_OBJECT), (secret["spec"], SECRET_TARGET)):
        jsonschema_rs.validate({"type": "object", "properties": schema, "additionalProperties": False}, spec)
    kubernetes_validate.validate(autoscaler, NEWEST, strict=True)


def test_names_within_the_manifest_are_right(objects: dict[tuple[str, str], dict[str, Any]]) -> None:
    scaled = objects["ScaledObject", "serving-node"]["spec"]
    (trigger,) = scaled["triggers"]
    given = {"config": "serving-config", "password": "serving-redis"}

    assert ("Deployment", scaled["scaleTargetRef"]["name"]) in objects
    assert ("TriggerAuthentication", trigger["authenticationRef"]["name"]) in objects
    assert ("Service", trigger["metadata"]["address"].partition(":")[0]) in objects
    for (kind, _), each in objects.items():
        if kind in ("Deployment", "StatefulSet"):
            pod = each["spec"]["template"]
            assert pod["metadata"]["labels"] == each["spec"]["selector"]["matchLabels"]
            volumes = {volume["name"]: volume for volume in pod["spec"]["volumes"]}
            volumes |= {claim["metadata"]["name"]: claim for claim in each["spec"].get("volumeClaimTemplates", [])}
            assert {mount["name"] for one in pod["spec"]["containers"] for mount in one["volumeMounts"]} == set(volumes)
            for name in given.keys() & volumes.keys():
                source = volumes[name].get("configMap", {}).get("name") or volumes[name]["secret"]["secretName"]
                assert source == given[name]
    for kind, name in (("Service", "serving"), ("Service", "serving-redis")):
        label = objects[kind, name]["spec"]["selector"]["app"]
        assert ("Deployment", label) in objects or ("StatefulSet", label) in objects


def test_settings_are_known_and_leave_time_to_drain(
    objects: dict[tuple[str, str], dict[str, Any]], tmp_path: Path
) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(objects["ConfigMap", "serving-config"]["data"]["config.yaml"])
    node = container(objects, "serving-node")
    environment = {each["name"]: each["value"] for each in node["env"]}
    secret = tmp_path / "password"
    secret.write_text("secret")
    environment[f"{ENVIRON_PREFIX}REDIS_PASSWORD_FILE"] = str(secret)
    config = load_config(path, environment, {}).config
    frontend = FrontendConfig.model_validate(yaml.safe_load(path.read_text())["frontend"])

    def grace_s(name: str) -> int:
        return int(objects["Deployment", name]["spec"]["template"]["spec"]["terminationGracePeriodSeconds"])

    (trigger,) = objects["ScaledObject", "serving-node"]["spec"]["triggers"]
    pause_s = int(container(objects, "serving-frontend")["lifecycle"]["preStop"]["exec"]["command"][-1])
    assert trigger["metadata"]["stream"] == config.job_name == keys.DEFAULT_JOB
    assert trigger["metadata"]["address"] == environment[f"{ENVIRON_PREFIX}REDIS_URL"]
    assert grace_s("serving-node") > config.drain_timeout_s
    assert grace_s("serving-frontend") > frontend.drain_timeout_s + pause_s


def test_containers_are_those_of_the_images(objects: dict[tuple[str, str], dict[str, Any]]) -> None:
    dockerfile = (ROOT / "docker" / "Dockerfile").read_text()
    node, frontend = container(objects, "serving-node"), container(objects, "serving-frontend")
    (check,) = re.findall(r'CMD \["healthy", "node"\]', dockerfile)

    assert check.removeprefix("CMD ") == str(node["readinessProbe"]["exec"]["command"]).replace("'", '"')
    assert f"EXPOSE {frontend['ports'][0]['containerPort']} " in dockerfile
    for name in ("serving-node", "serving-frontend"):
        pod = objects["Deployment", name]["spec"]["template"]["spec"]
        assert f"USER {pod['securityContext']['runAsUser']}:" in dockerfile
        assert pod["enableServiceLinks"] is False
