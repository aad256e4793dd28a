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
    GATEWAY_POD,
    as_served,
    brokers,
    captured,
    gateway,
    injected,
    istiod,
    pod_of,
    policies,
    release,
    secret,
    slice_of,
)
from istio_program import Pushed, charts, deploy, named, push

GATEWAY_ADDRESS = "10.1.0.2"
BROKER_ADDRESSES: Mapping[int, str] = {0: "10.1.0.3", 1: "10.1.0.4", 2: "10.1.0.5"}
WAYS = {  # in which the sidecar comes to be in the gateway's pod, and the chart's gateway.type
    "gateway values": "istio",
    "injection template": "istio-injection",
    "gateway parameters": "gateway-api",
}


class Mesh:
    """Istio's control plane and gateway by Istio's charts, the sidecar and the routes by ours."""

    def __init__(self, folder: Path) -> None:
        self.authority = Authority()
        self.ingress_ca = trustme.CA()
        self._charts = charts(folder)
        self._secret = secret(self.ingress_ca)
        self.pushed: Callable[..., dict[str, Pushed]] = cache(self._pushed)
        self.gateway: Callable[[str], list[Object]] = cache(self._gateway)

    def account(self, way: str) -> str:
        """The ServiceAccount of the gateway's pod."""
        name: str = named(self.gateway(way), "Pod", GATEWAY_POD)["spec"]["serviceAccountName"]
        return name

    def identity(self, way: str) -> str:
        """The gateway's, which its sidecar shares."""
        return f"spiffe://cluster.local/ns/istio-ingress/sa/{self.account(way)}"

    def _gateway(self, way: str) -> list[Object]:
        """The gateway as it is in the cluster: its objects, its pod, and the sidecar's ConfigMaps."""
        control_plane, objects = self._with_sidecar(way)
        (deployment,) = (each for each in injected(control_plane, objects) if each["kind"] == "Deployment")
        pod = pod_of(deployment, GATEWAY_POD, GATEWAY_ADDRESS)
        return [pod, *(each for each in objects if each["kind"] in ("Service", "ServiceAccount", "ConfigMap"))]

    def _with_sidecar(self, way: str) -> tuple[list[Object], list[Object]]:
        """istiod's ConfigMaps, and what is to be admitted."""
        ours = release(WAYS[way])
        in_pods = [each for each in ours if each["kind"] == "ConfigMap"]
        ((file, text),) = named(ours, "ConfigMap", "pulsar-ingress-proxy-sidecar")["data"].items()
        match file:
            case "istio-gateway-values.yaml":
                return istiod(self._charts, {}), [*in_pods, *gateway(self._charts, yaml.safe_load(text))]
            case "istio-injection-template.yaml":
                values = yaml.safe_load(text)
                (template,) = values["sidecarInjectorWebhook"]["templates"]
                asked = {"podAnnotations": {"inject.istio.io/templates": f"gateway,{template}"}}
                return istiod(self._charts, values), [*in_pods, *gateway(self._charts, asked)]
            case "deployment":
                control_plane = istiod(self._charts, {})
                return control_plane, [*in_pods, *deploy([*control_plane, *ours])]
        raise AssertionError(file)

    def _pushed(
        self,
        way: str = "gateway values",
        strict: bool = True,
        bypass: bool = False,
        through: bool = False,
        fail_open: bool = False,
        ambient: bool = False,
    ) -> dict[str, Pushed]:
        """What every pod's Envoy gets, with the chart's routes, and brokers that take mutual TLS only if `strict`.

        Brokers have an Envoy of their own, unless they are in ambient mode.
        """
        control_plane = istiod(self._charts, {})
        behind = brokers(BROKER_ADDRESSES)
        found = [
            *self.gateway(way),
            *(captured(behind) if ambient else injected(control_plane, behind)),
            *(
                each
                for each in release(WAYS[way], bypass=bypass, binary={"throughSidecar": through}, failOpen=fail_open)
                if "networking" in each["apiVersion"] or each["kind"] == "Service"
            ),
            *(policies(self.account(way)) if strict else ()),
            self._secret,
        ]
        objects = [as_served(each) for each in found]
        pods = [each for each in objects if each["kind"] == "Pod"]
        slices = [slice_of(each, pods) for each in objects if each["kind"] == "Service"]
        return push([*control_plane, *objects, *slices])


@pytest.fixture(scope="session")
def mesh(tmp_path_factory: pytest.TempPathFactory) -> Mesh:
    return Mesh(tmp_path_factory.mktemp("istio"))
