"""deploy/spark: commands that the pipeline takes, rights that fit, and pods that are as restricted as the sidecar's."""

import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml
from deployed import DEPLOY, Object, documents, one

from pulsar_ingress_pipeline.cli import make_parser
from pulsar_ingress_pipeline.session import PORT
from pulsar_ingress_proxy import __version__

FILES = sorted(path.name for path in (DEPLOY / "spark").glob("*.yaml"))
NAME = {"name": "pulsar-ingress-pipeline", "namespace": "pulsar"}
IMAGE = f"pulsar-ingress-pipeline:{__version__}"
WORK = "/var/lib/pulsar-ingress-pipeline"
MAIN = "local:///opt/pulsar-ingress-pipeline/main.py"
RESTRICTED = {
    "runAsNonRoot": True,
    "runAsUser": 10001,
    "runAsGroup": 10001,
    "allowPrivilegeEscalation": False,
    "readOnlyRootFilesystem": True,
    "capabilities": {"drop": ["ALL"]},
    "seccompProfile": {"type": "RuntimeDefault"},
}


def settings() -> dict[str, str]:
    text = one("spark/settings.yaml", "ConfigMap")["data"]["spark-defaults.conf"]
    lines = [line.split(None, 1) for line in text.splitlines() if not line.startswith("#")]
    return {key: value.strip() for key, value in lines}


def executor_template() -> Object:
    template: Object = yaml.safe_load(one("spark/settings.yaml", "ConfigMap")["data"]["executor.yaml"])
    return template


def job() -> Object:
    made: Object = one("spark/cronjob.yaml", "CronJob")["spec"]["jobTemplate"]["spec"]
    return made


def application() -> Object:
    made: Object = one("spark/sparkapplication.yaml", "SparkApplication")["spec"]
    return made


def stream() -> Object:
    made: Object = one("spark/stream.yaml", "Deployment")["spec"]
    return made


def server() -> Object:
    made: Object = one("spark/connect.yaml", "Deployment")["spec"]
    return made


def client() -> Object:
    made: Object = one("spark/connect-cronjob.yaml", "CronJob")["spec"]["jobTemplate"]["spec"]
    return made


def container(pod: Object) -> Object:
    (found,) = pod["spec"]["containers"]
    return dict(found)


PODS: dict[str, Object] = {
    "driver of the CronJob": job()["template"],
    "executor of the CronJob": executor_template(),
    "stream": stream()["template"],
    "driver of the SparkApplication": application()["driver"]["template"],
    "executor of the SparkApplication": application()["executor"]["template"],
    "driver of the Connect server": server()["template"],
    "client of the Connect server": client()["template"],
}
every_pod = pytest.mark.parametrize("whose", PODS)


def commands() -> Iterator[tuple[str, list[str]]]:
    """What the pipeline itself is given."""
    words = container(job()["template"])["args"]
    yield "run", words[words.index(MAIN) + 1 :]
    yield "stream", container(stream()["template"])["args"]
    yield "stream", application()["arguments"]
    yield "run", container(client()["template"])["args"]


@pytest.mark.parametrize("path", FILES)
def test_every_spark_object_has_the_pipelines_name_and_namespace(path: str) -> None:
    for document in documents(f"spark/{path}"):
        name = NAME["name"] + "-connect" if path == "connect.yaml" else NAME["name"]
        assert {key: document["metadata"][key] for key in NAME} == NAME | {"name": name}


@pytest.mark.parametrize(("name", "words"), [*commands()])
def test_pipeline_parses_the_arguments_in_its_manifests(name: str, words: list[str]) -> None:
    options = make_parser().parse_args(words)
    assert options.name == name
    assert (options.events, options.tables) == tuple(f"s3://my-bucket/pulsar-ingress/{x}" for x in ("events", "tables"))


def test_events_are_read_where_they_are_shipped() -> None:
    (shipper,) = documents("events/shipper.patch.yaml")[0]["spec"]["template"]["spec"]["initContainers"]
    (destination,) = [each["value"] for each in shipper["env"] if each["name"] == "DESTINATION"]
    places = {make_parser().parse_args(words).events for _, words in commands()}
    assert {place.replace("s3://", "store:") for place in places} == {destination}


@every_pod
def test_pods_are_restricted(whose: str) -> None:
    pod = PODS[whose]
    assert container(pod)["securityContext"] == RESTRICTED
    assert pod["metadata"]["labels"]["app.kubernetes.io/name"] == "pulsar-ingress-pipeline"
    mounts = {mount["mountPath"]: mount["name"] for mount in container(pod)["volumeMounts"]}
    volumes = {volume["name"]: volume for volume in pod["spec"]["volumes"]}
    assert set(mounts.values()) == volumes.keys()
    assert all("emptyDir" in volumes[mounts[place]] for place in (WORK, "/tmp"))


@every_pod
def test_only_drivers_have_a_token(whose: str) -> None:
    assert PODS[whose]["spec"]["automountServiceAccountToken"] == whose.startswith("driver")
    assert one("spark/rbac.yaml", "ServiceAccount")["automountServiceAccountToken"] is False


def test_every_pod_uses_the_service_account_with_the_needed_rights() -> None:
    binding = one("spark/rbac.yaml", "RoleBinding")
    assert binding["subjects"] == [{"kind": "ServiceAccount", **NAME}]
    assert binding["roleRef"]["name"] == one("spark/rbac.yaml", "Role")["metadata"]["name"]
    accounts = [
        job()["template"]["spec"]["serviceAccountName"],
        stream()["template"]["spec"]["serviceAccountName"],
        settings()["spark.kubernetes.authenticate.executor.serviceAccountName"],
        application()["driver"]["serviceAccount"],
        application()["executor"]["serviceAccount"],
        server()["template"]["spec"]["serviceAccountName"],
        client()["template"]["spec"]["serviceAccountName"],
    ]
    assert {*accounts} == {one("spark/rbac.yaml", "ServiceAccount")["metadata"]["name"]}
    (rule,) = one("spark/rbac.yaml", "Role")["rules"]
    assert {"pods", "configmaps"} <= {*rule["resources"]}
    assert {"create", "get", "list", "watch", "deletecollection"} <= {*rule["verbs"]}


def test_every_pod_runs_the_same_image_with_the_locked_spark_version() -> None:
    images = [container(job()["template"])["image"], container(stream()["template"])["image"]]
    images += [application()["image"], settings()["spark.kubernetes.container.image"]]
    images += [container(server()["template"])["image"], container(client()["template"])["image"]]
    assert {*images} == {IMAGE}
    lock = (DEPLOY / "requirements/pipeline.txt").read_text()
    assert f"\npyspark=={application()['sparkVersion']} " in lock


@pytest.mark.parametrize("whose", ["driver of the CronJob", "driver of the Connect server"])
def test_driver_mounts_its_settings_and_gives_executors_its_address(whose: str) -> None:
    driver = container(PODS[whose])
    assert driver["command"] == ["spark-submit"]
    words = driver["args"]
    assert words[words.index("--master") + 1] == "k8s://https://kubernetes.default.svc"
    given = {words[index + 1] for index, word in enumerate(words) if word == "--conf"}
    assert given >= {"spark.driver.host=$(POD_IP)", "spark.kubernetes.driver.pod.name=$(POD_NAME)"}
    assert {variable["name"] for variable in driver["env"]} == {"POD_IP", "POD_NAME"}
    (place,) = [mount["mountPath"] for mount in driver["volumeMounts"] if mount["name"] == "settings"]
    assert settings()["spark.kubernetes.executor.podTemplateFile"] == f"{place}/executor.yaml"
    assert settings()["spark.kubernetes.namespace"] == NAME["namespace"]
    (volume,) = [volume for volume in PODS[whose]["spec"]["volumes"] if volume["name"] == "settings"]
    assert volume["configMap"] == {"name": one("spark/settings.yaml", "ConfigMap")["metadata"]["name"]}


def test_connect_server_is_reachable_by_its_client_and_executors_only() -> None:
    service = one("spark/connect.yaml", "Service")
    remote = urlsplit(make_parser().parse_args(container(client()["template"])["args"]).remote)
    assert remote.scheme == "sc"
    assert remote.hostname == f"{service['metadata']['name']}.{NAME['namespace']}.svc"
    (port,), (opened,) = service["spec"]["ports"], container(server()["template"])["ports"]
    assert (port["targetPort"], remote.port) == (opened["name"], port["port"])
    assert opened["containerPort"] == PORT
    labels = server()["template"]["metadata"]["labels"]
    policy = one("spark/connect.yaml", "NetworkPolicy")["spec"]
    for selector in (
        service["spec"]["selector"],
        server()["selector"]["matchLabels"],
        policy["podSelector"]["matchLabels"],
    ):
        assert selector.items() <= labels.items()
    clients, executors = policy["ingress"]
    (allowed,) = clients["from"]
    assert allowed["podSelector"]["matchLabels"].items() <= client()["template"]["metadata"]["labels"].items()
    assert clients["ports"] == [{"port": opened["name"]}]
    ports = {str(each["port"]) for each in executors["ports"]}
    assert ports == {settings()["spark.driver.port"], settings()["spark.blockManager.port"]}


def test_two_pipeline_runs_never_write_at_once() -> None:
    for file in ("cronjob", "connect-cronjob"):
        assert one(f"spark/{file}.yaml", "CronJob")["spec"]["concurrencyPolicy"] == "Forbid"
    assert (stream()["replicas"], stream()["strategy"]) == (1, {"type": "Recreate"})
    labels = stream()["template"]["metadata"]["labels"]
    assert stream()["selector"]["matchLabels"] == labels


def test_memory_limits_hold_the_java_heap_and_its_overhead() -> None:
    def bytes_of(word: str) -> int:
        number, unit = re.fullmatch(r"(\d+)(g|Gi|Mi)", word).groups()  # type: ignore[union-attr]
        return int(number) << (20 if unit == "Mi" else 30)

    heaps: list[tuple[dict[str, Any], str]] = [
        (container(job()["template"]), settings()["spark.driver.memory"]),
        (container(server()["template"]), settings()["spark.driver.memory"]),
        (container(stream()["template"]), container(stream()["template"])["env"][0]["value"].split()[1]),
    ]
    for each, heap in heaps:
        limit = bytes_of(each["resources"]["limits"]["memory"])
        assert each["resources"]["requests"]["memory"] == each["resources"]["limits"]["memory"]
        assert limit >= bytes_of(heap) + max(384 << 20, bytes_of(heap) * 4 // 10)
