"""The kinds that gateways and the Prometheus operator bring into a cluster, defined as in their own Go modules."""

from pathlib import Path
from typing import Any, Literal

import yaml
from go_modules import sources


def gateway_api(channel: Literal["standard", "experimental"] = "standard") -> list[dict[str, Any]]:
    """`standard` serves these kinds as v1; `experimental` serves TLSRoute and TCPRoute as v1alpha2 as well."""
    folder = sources("sigs.k8s.io/gateway-api") / "config/crd" / channel
    kinds = ("gateways", "listenersets", "httproutes", "tlsroutes", "tcproutes")
    return [crd for kind in kinds for crd in definitions(folder / f"gateway.networking.k8s.io_{kind}.yaml")]


def istio() -> list[dict[str, Any]]:
    """Gateway and VirtualService; the other kinds of Istio's file are nothing to us."""
    file = sources("istio.io/api") / "kubernetes/customresourcedefinitions.gen.yaml"
    wanted = ("gateways.networking.istio.io", "virtualservices.networking.istio.io")
    return [crd for crd in definitions(file) if crd["metadata"]["name"] in wanted]


def prometheus_operator() -> list[dict[str, Any]]:
    folder = sources("github.com/prometheus-operator/prometheus-operator") / "example/prometheus-operator-crd"
    kinds = ("podmonitors", "servicemonitors", "prometheusrules")
    return [crd for kind in kinds for crd in definitions(folder / f"monitoring.coreos.com_{kind}.yaml")]


def all_kinds() -> list[dict[str, Any]]:
    """Whatever a manifest of ours may have; with everything of the experimental channel."""
    istio_file = sources("istio.io/api") / "kubernetes/customresourcedefinitions.gen.yaml"
    folders = (
        sources("sigs.k8s.io/gateway-api") / "config/crd/experimental",
        sources("github.com/envoyproxy/gateway") / "charts/gateway-helm/charts/crds/crds/generated",
        sources("github.com/traefik/traefik/v3") / "docs/content/reference/dynamic-configuration",
        sources("github.com/kubeflow/spark-operator/v2") / "config/crd/bases",
    )
    files = [istio_file, *(file for folder in folders for file in sorted(folder.glob("*_*.yaml")))]
    return [*prometheus_operator(), *(crd for file in files for crd in definitions(file) if _is_definition(crd))]


def named(*names: str) -> list[dict[str, Any]]:
    """Those of all kinds with these names, such as envoyproxies.gateway.envoyproxy.io."""
    found = [crd for crd in all_kinds() if crd["metadata"]["name"] in names]
    assert len(found) == len(names), f"of {names} there are {[crd['metadata']['name'] for crd in found]}"
    return found


def _is_definition(each: dict[str, Any] | None) -> bool:
    return each is not None and each.get("kind") == "CustomResourceDefinition"


def definitions(file: Path) -> list[dict[str, Any]]:
    """By libyaml: the files have a megabyte, for which the loader in Python takes ten seconds."""
    return list(yaml.load_all(file.read_text(), Loader=yaml.CSafeLoader))
