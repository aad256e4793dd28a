"""The mesh that all tests of a run share: manifests, certificates, and what Istio makes of them."""

from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path

import pytest
import trustme
import yaml
from apiclient import Object
from istio_certificates import Authority
from istio_cluster import (
    CHART,
    GATEWAY_POD,
    MANIFESTS,
    as_served,
    brokers,
    config,
    gateway,
    injected,
    istiod,
    manifests,
    pod_of,
    secret,
    slice_of,
)
from istio_program import Pushed, charts, named, patched, push, rendered

GATEWAY_ADDRESS = "10.1.0.2"
BROKER_ADDRESSES: Mapping[int, str] = {0: "10.1.0.3", 1: "10.1.0.4", 2: "10.1.0.5"}
ROUTES = ("gateway.yaml", "routes.yaml", "binary.yaml", "mtls.yaml")
WAYS = ("gateway values", "injection template", "patch")  # in which the sidecar comes to be in the gateway's pod


class Mesh:
    """Istio's control plane and gateway by Istio's charts, the sidecar by ours or by deploy/istio."""

    def __init__(self, folder: Path) -> None:
        self.authority = Authority()
        self.ingress_ca = trustme.CA()
        self._charts = charts(folder)
        self._secret = secret(self.ingress_ca)
        self.pushed: Callable[..., dict[str, Pushed]] = cache(self._pushed)
        self.gateway: Callable[[str], list[Object]] = cache(self._gateway)

    def _gateway(self, way: str) -> list[Object]:
        """The gateway as it is in the cluster: its objects, its pod, and the sidecar's ConfigMaps."""
        control_plane, objects = self._with_sidecar(way)
        deployment = named(injected(control_plane, objects), "Deployment", "istio-ingress")
        pod = pod_of(deployment, GATEWAY_POD, GATEWAY_ADDRESS)
        return [pod, *(each for each in objects if each["kind"] in ("Service", "ServiceAccount", "ConfigMap"))]

    def patched(self, *names: str) -> Object:
        """The gateway's Deployment with these patches of deploy/istio, not injected."""
        deployment: Object = named(gateway(self._charts, {}), "Deployment", "istio-ingress")
        for name in names:
            deployment = patched(deployment, MANIFESTS / name)
        return deployment

    def _with_sidecar(self, way: str) -> tuple[list[Object], list[Object]]:
        """istiod's ConfigMaps, and what is to be admitted."""
        match way:
            case "gateway values":
                ours, fragment = self._chart("istio", "istio-gateway-values.yaml")
                return istiod(self._charts, {}), [*ours, *gateway(self._charts, fragment)]
            case "injection template":
                ours, fragment = self._chart("istio-injection", "istio-injection-template.yaml")
                (template,) = fragment["sidecarInjectorWebhook"]["templates"]
                asked = {"podAnnotations": {"inject.istio.io/templates": f"gateway,{template}"}}
                return istiod(self._charts, fragment), [*ours, *gateway(self._charts, asked)]
            case "patch":
                others = [each for each in gateway(self._charts, {}) if each["kind"] != "Deployment"]
                deployment = self.patched("gateway-sidecar.patch.yaml")
                return istiod(self._charts, {}), [*manifests("configmap.yaml"), *others, deployment]
        raise AssertionError(way)

    def _chart(self, kind: str, file: str) -> tuple[list[Object], Object]:
        """What our chart makes, with the config of deploy/istio, and its fragment for a gateway."""
        values = {"gateway": {"type": kind, "istioCertificates": True}, "config": yaml.safe_load(config())}
        made = rendered(CHART, "pulsar-ingress-proxy", "istio-ingress", values)
        fragment: Object = yaml.safe_load(named(made, "ConfigMap", "pulsar-ingress-proxy-sidecar")["data"][file])
        return made, fragment

    def _pushed(self, *names: str) -> dict[str, Pushed]:
        """What every pod's Envoy gets, with these of our manifests applied, the later in place of the earlier."""
        control_plane = istiod(self._charts, {})
        ours = {
            (each["kind"], each["metadata"]["namespace"], each["metadata"]["name"]): each for each in manifests(*names)
        }
        found = [
            *self.gateway("gateway values"),
            *injected(control_plane, brokers(BROKER_ADDRESSES)),
            *ours.values(),
            self._secret,
        ]
        objects = [as_served(each) for each in found]
        pods = [each for each in objects if each["kind"] == "Pod"]
        slices = [slice_of(each, pods) for each in objects if each["kind"] == "Service"]
        return push([*control_plane, *objects, *slices])


@pytest.fixture(scope="session")
def mesh(tmp_path_factory: pytest.TempPathFactory) -> Mesh:
    return Mesh(tmp_path_factory.mktemp("istio"))
