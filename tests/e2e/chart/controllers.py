"""Small stand-ins for the controllers of Jobs and Deployments, and for the garbage collector, in one namespace.

A Job is tried again at once, `backoffLimit` times. A Deployment makes its pods itself, without ReplicaSets; where its
template has changed, new pods are made, and once they are ready the old ones go.
"""

import asyncio
import datetime
import hashlib
import json
import secrets
from collections import Counter

from apiclient import Api, Object, Refused


class Controllers:
    """What makes pods, and ends them with their owners."""

    def __init__(self, api: Api, namespace: str) -> None:
        self._api = api
        self._namespace = namespace
        self._pods: dict[str, Object] = {}  # by uid
        self._jobs: dict[str, Object] = {}
        self._deployments: dict[str, Object] = {}
        self._failures: Counter[str] = Counter()
        self._rolling = asyncio.Lock()

    async def on_pod(self, event: str, pod: Object) -> None:
        uid = pod["metadata"]["uid"]
        before = self._pods.pop(uid, None)
        if event != "DELETED":
            self._pods[uid] = pod
        for owner in pod["metadata"].get("ownerReferences", []):
            if owner["uid"] in self._jobs:
                if _phase(before) != _phase(pod) and event != "DELETED":
                    await self._progress(self._jobs[owner["uid"]], _phase(pod))
            elif owner["uid"] in self._deployments:
                await self._roll(self._deployments[owner["uid"]])

    async def on_job(self, event: str, job: Object) -> None:
        uid = job["metadata"]["uid"]
        if event == "DELETED" or job["metadata"].get("deletionTimestamp"):
            self._jobs.pop(uid, None)
            await self._collect(job)
        elif uid not in self._jobs:
            self._jobs[uid] = job
            if not job.get("status", {}).get("conditions"):
                await self._api.patch(job, {"status": {"startTime": _now(), "active": 1}}, subresource="status")
                await self._make(job, {"batch.kubernetes.io/job-name": job["metadata"]["name"]})

    async def _progress(self, job: Object, phase: str) -> None:
        name, uid = job["metadata"]["name"], job["metadata"]["uid"]
        if phase == "Succeeded":
            done = [_condition("SuccessCriteriaMet"), _condition("Complete")]
            status = {"active": 0, "ready": 0, "succeeded": 1, "completionTime": _now(), "conditions": done}
            await self._write(job, status)
        elif phase == "Failed":
            self._failures[uid] += 1
            if self._failures[uid] <= job["spec"].get("backoffLimit", 6):
                await self._make(job, {"batch.kubernetes.io/job-name": name})
                return
            why = {"reason": "BackoffLimitExceeded", "message": "Job has reached the specified backoff limit"}
            done = [_condition("FailureTarget") | why, _condition("Failed") | why]
            await self._write(job, {"active": 0, "ready": 0, "failed": self._failures[uid], "conditions": done})

    async def on_deployment(self, event: str, deployment: Object) -> None:
        uid = deployment["metadata"]["uid"]
        if event == "DELETED" or deployment["metadata"].get("deletionTimestamp"):
            self._deployments.pop(uid, None)
            await self._collect(deployment)
            return
        changed = uid not in self._deployments or (
            self._deployments[uid]["metadata"]["generation"] != deployment["metadata"]["generation"]
        )
        self._deployments[uid] = deployment
        if changed:
            await self._roll(deployment)

    async def _roll(self, deployment: Object) -> None:
        async with self._rolling:
            await self._rolled(deployment)

    async def _rolled(self, deployment: Object) -> None:
        spec = deployment["spec"]
        version = hashlib.sha256(json.dumps(spec["template"], sort_keys=True).encode()).hexdigest()[:10]
        living = [pod for pod in self._owned(deployment) if "deletionTimestamp" not in pod["metadata"]]
        new = [pod for pod in living if pod["metadata"]["labels"]["pod-template-hash"] == version]
        for _ in range(spec.get("replicas", 1) - len(new)):
            made = await self._make(deployment, {"pod-template-hash": version})
            self._pods[made["metadata"]["uid"]] = made
        ready = [pod for pod in new if _is_ready(pod)]
        if len(ready) >= spec.get("replicas", 1):
            spare = [pod for pod in living if pod not in new] + new[spec.get("replicas", 1) :]
            for pod in spare:
                await self._api.delete(pod, grace_seconds=pod["spec"]["terminationGracePeriodSeconds"])
                pod["metadata"]["deletionTimestamp"] = _now()
        counts = {"replicas": len(living), "updatedReplicas": len(new), "readyReplicas": len(ready)}
        await self._write(
            deployment,
            {**counts, "availableReplicas": len(ready), "observedGeneration": deployment["metadata"]["generation"]},
        )

    async def _make(self, owner: Object, labels: dict[str, str]) -> Object:
        template, metadata = owner["spec"]["template"], owner["metadata"]
        given = template.get("metadata", {})
        return await self._api.create(
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {
                    **given,
                    "name": f"{metadata['name']}-{secrets.token_hex(3)}",
                    "namespace": self._namespace,
                    "labels": {**given.get("labels", {}), **labels},
                    "ownerReferences": [
                        {
                            "apiVersion": owner["apiVersion"],
                            "kind": owner["kind"],
                            "name": metadata["name"],
                            "uid": metadata["uid"],
                            "controller": True,
                        }
                    ],
                },
                "spec": template["spec"],
            }
        )

    def _owned(self, owner: Object) -> list[Object]:
        uid = owner["metadata"]["uid"]
        return [
            pod
            for pod in self._pods.values()
            if any(each["uid"] == uid for each in pod["metadata"].get("ownerReferences", []))
        ]

    async def _collect(self, owner: Object) -> None:
        for pod in self._owned(owner):
            if "deletionTimestamp" not in pod["metadata"]:
                try:
                    await self._api.delete(pod, grace_seconds=pod["spec"]["terminationGracePeriodSeconds"])
                except Refused as refused:
                    if refused.status != 404:
                        raise

    async def _write(self, each: Object, status: Object) -> None:
        """Into its status, unless it has gone."""
        try:
            await self._api.patch(each, {"status": status}, subresource="status")
        except Refused as refused:
            if refused.status != 404:
                raise


def _phase(pod: Object | None) -> str:
    return str(pod.get("status", {}).get("phase", "")) if pod is not None else ""


def _is_ready(pod: Object) -> bool:
    conditions = pod.get("status", {}).get("conditions", [])
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)


def _condition(kind: str) -> Object:
    return {"type": kind, "status": "True", "lastProbeTime": _now(), "lastTransitionTime": _now()}


def _now() -> str:
    return datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
