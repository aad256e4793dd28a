"""The container beside a gateway: what the chart says, as a change to the gateway's Deployment.

That is what each gateway makes of it: Istio's gateway chart and Traefik's put lists of their values into the pod's
template, istiod's webhook and Envoy Gateway merge a template or a patch into it, as Kubernetes merges.
"""

from typing import Any

import yaml
from apiclient import Object

FILES = {"istio-gateway-values.yaml", "istio-injection-template.yaml", "deployment", "traefik-values.yaml"}


def is_fragment(each: Object) -> bool:
    """Whether it is the ConfigMap or the EnvoyProxy that has one."""
    return each["kind"] == "EnvoyProxy" or (each["kind"] == "ConfigMap" and bool(FILES & each.get("data", {}).keys()))


def change(holder: Object) -> Object:
    """For `spec.template` of a Deployment, to be merged strategically."""
    if holder["kind"] == "EnvoyProxy":
        patch = holder["spec"]["provider"]["kubernetes"]["envoyDeployment"]["patch"]
        assert patch["type"] == "StrategicMerge"
        merged: Object = patch["value"]["spec"]["template"]
        return merged
    ((file, text),) = holder["data"].items()
    fragment: Any = yaml.safe_load(text)
    match file:
        case "istio-gateway-values.yaml":
            spec = {key: fragment[key] for key in ("initContainers", "volumes")}
            if "volumeMounts" in fragment or "env" in fragment:
                env = [{"name": name, "value": value} for name, value in fragment["env"].items()]
                spec["containers"] = [{"name": "istio-proxy", "env": env, "volumeMounts": fragment["volumeMounts"]}]
            return {"metadata": {"annotations": fragment.get("podAnnotations", {})}, "spec": spec}
        case "istio-injection-template.yaml":
            (text,) = fragment["sidecarInjectorWebhook"]["templates"].values()
            injected: Object = yaml.safe_load(text)
            return injected
        case "deployment":
            template: Object = fragment["spec"]["template"]
            return template
        case "traefik-values.yaml":
            deployment = fragment["deployment"]
            spec = {"containers": deployment["additionalContainers"], "volumes": deployment["additionalVolumes"]}
            return {"metadata": {"annotations": deployment.get("podAnnotations", {})}, "spec": spec}
        case _:
            raise AssertionError(f"{file}: no gateway has that")


def pod(holder: Object) -> Object:
    """Nothing but the container, its volumes and annotations, as a pod: for those who judge manifests."""
    template = change(holder)
    spec = template["spec"]
    others = [{"image": "gateway", **each} for each in spec.get("containers", [])]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "gateway", "annotations": template.get("metadata", {}).get("annotations", {})},
        "spec": {**spec, "containers": others or [{"name": "istio-proxy", "image": "gateway"}]},
    }
