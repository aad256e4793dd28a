"""Spark on Kubernetes with the pipeline's image: the CronJob's container is the driver before a real API server, with
the rights of deploy/spark. There is no kubelet: the test starts the executors of the pods that the driver makes.
"""

import asyncio
from pathlib import Path

import duckdb
import pytest
import yaml
from apiclient import Api, Object
from apiserver import ApiServer

from deploy.image import pipeline
from deploy.image.engines import REPOSITORY, Image
from deploy.image.pipeline import EVENTS

pytestmark = pytest.mark.timeout(900)  # a first build makes the base, and a wheel of Spark

TOKEN = "/var/run/secrets/kubernetes.io/serviceaccount"
SHARED = "/shared"
"""In place of a bucket."""


def manifests(name: str, namespace: str) -> list[Object]:
    text = (REPOSITORY / "deploy/spark" / name).read_text()
    return [*yaml.safe_load_all(text.replace("namespace: pulsar", f"namespace: {namespace}"))]


def folder(path: Path, **files: str) -> Path:
    path.mkdir(parents=True)
    path.chmod(0o777)
    for name, text in files.items():
        (path / name).write_text(text)
    return path


class Executors:
    """What a kubelet would do for pods of Spark's: their containers, as they are written."""

    def __init__(self, api: Api, image: Image, place: Path, shared: Path) -> None:
        self._api, self._image, self._place, self._shared = api, image, place, shared
        self._running: dict[str, asyncio.subprocess.Process] = {}
        self.pods: list[Object] = []

    async def start(self, pod: Object) -> None:
        (container,) = pod["spec"]["containers"]
        status = {"phase": "Running", "podIP": "127.0.0.1", "podIPs": [{"ip": "127.0.0.1"}]}
        await self._api.patch(pod, {"status": status}, "status")
        fields = {"status.podIP": "127.0.0.1", "metadata.name": pod["metadata"]["name"]}
        variables = {
            each["name"]: each.get("value") or fields[each["valueFrom"]["fieldRef"]["fieldPath"]]
            for each in container["env"]
            if each.get("value") or "valueFrom" in each
        }
        places = {each["name"]: each["mountPath"] for each in container["volumeMounts"]}
        mounts, writable = {Path("/etc/hosts"): "/etc/hosts"}, {self._shared: SHARED}
        for volume in pod["spec"]["volumes"]:
            where = self._place / pod["metadata"]["name"] / volume["name"]
            if source := volume.get("configMap"):
                metadata = {"namespace": pod["metadata"]["namespace"], "name": source["name"]}
                found = await self._api.get({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata})
                mounts[folder(where, **found.get("data", {}))] = places[volume["name"]]
            else:
                assert "emptyDir" in volume, volume
                writable[folder(where)] = places[volume["name"]]
        variables["SPARK_LOCAL_HOSTNAME"] = "localhost"  # a pod knows its own name
        made = self._image.container(mounts, variables, writable)
        process = await asyncio.create_subprocess_exec(
            *made.run(*container["args"]), stdin=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE
        )
        self._running[pod["metadata"]["name"]] = process
        self.pods.append(pod)

    async def follow(self, namespace: str) -> None:
        since = (await self._api.list("v1", "Pod", namespace))["metadata"]["resourceVersion"]
        async with self._api.watch("v1", "Pod", namespace, since=since, seconds=600) as events:
            async for event in events:
                labels = event["object"]["metadata"].get("labels", {})
                if event["type"] == "ADDED" and labels.get("spark-role") == "executor":
                    await self.start(event["object"])

    async def ended(self) -> list[str]:
        """What each has said, when all have ended."""
        said = await asyncio.gather(*(process.communicate() for process in self._running.values()))
        return [(words or b"").decode() for _, words in said]


async def test_cron_job_driver_runs_its_work_on_executor_pods_and_removes_them(
    api_server: ApiServer, admin: Api, namespace: str, pipeline_image: Image, tmp_path: Path
) -> None:
    await admin.apply(*manifests("rbac.yaml", namespace))
    (settings,), (cron,) = manifests("settings.yaml", namespace), manifests("cronjob.yaml", namespace)
    defaults = settings["data"]["spark-defaults.conf"].replace(
        "spark.kubernetes.namespace                                  pulsar", f"spark.kubernetes.namespace {namespace}"
    )
    assert namespace in defaults
    template = cron["spec"]["jobTemplate"]["spec"]["template"]
    (container,) = template["spec"]["containers"]
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {**template["metadata"], "name": "driver", "namespace": namespace},
        "spec": {**template["spec"], "automountServiceAccountToken": False},  # which the test mounts
    }
    await admin.create(pod)

    account = template["spec"]["serviceAccountName"]
    token = await admin.service_account_token(namespace, account)
    authority = api_server.certificates.read_text()
    shared = folder(tmp_path / "shared")
    pipeline.write_events(shared / "events", EVENTS)
    conf = folder(tmp_path / "conf", **{**settings["data"], "spark-defaults.conf": defaults})
    mounts = {
        Path("/etc/hosts"): "/etc/hosts",
        folder(tmp_path / "token", token=token, **{"ca.crt": authority, "namespace": namespace}): TOKEN,
        conf: "/opt/spark/conf",
    }
    writable = {shared: SHARED, folder(tmp_path / "work"): pipeline.WORK, folder(tmp_path / "tmp"): "/tmp"}
    words = [
        word.replace("$(POD_IP)", "127.0.0.1")
        .replace("$(POD_NAME)", "driver")
        .replace("https://kubernetes.default.svc", api_server.url)
        .replace("s3://my-bucket/pulsar-ingress", SHARED)
        for word in container["args"]
    ]
    less = ("--conf", "spark.executor.instances=1", "--conf", "spark.executor.memory=512m")
    host, _, port = api_server.url.removeprefix("https://").partition(":")
    variables = {"KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": port, "SPARK_LOCAL_HOSTNAME": "localhost"}
    made = pipeline_image.container(mounts, variables, writable)

    executors = Executors(admin, pipeline_image, tmp_path / "pods", shared)
    following = asyncio.create_task(executors.follow(namespace))
    driver = await asyncio.create_subprocess_exec(
        *made.instead(*container["command"], *less, *words),
        stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
    )  # fmt: skip
    said, _ = await asyncio.wait_for(driver.communicate(), pipeline.RUN_SECONDS)
    following.cancel()
    logs = await asyncio.wait_for(executors.ended(), 120)
    assert driver.returncode == 0, said.decode() + "".join(logs)
    assert f"{SHARED}/tables: 1 files, {EVENTS} events, 0 lines in quarantine" in said.decode()
    with duckdb.connect() as tables:
        windows = f"read_parquet('{shared}/tables/listener_windows/*.parquet')"
        assert tables.execute(f"select sum(hits), sum(misses) from {windows}").fetchall() == [(EVENTS, 0)]

    (executor,) = executors.pods
    (inside,) = executor["spec"]["containers"]
    assert inside["image"] == container["image"]
    assert inside["securityContext"] == container["securityContext"]
    assert executor["spec"]["serviceAccountName"] == account
    assert executor["spec"]["automountServiceAccountToken"] is False
    assert [owner["name"] for owner in executor["metadata"]["ownerReferences"]] == ["driver"]
    left = (await admin.list("v1", "Pod", namespace))["items"]
    assert [each["metadata"]["name"] for each in left if "deletionTimestamp" not in each["metadata"]] == ["driver"]
