"""The kinds that Gateway API and Istio bring into a cluster, defined as in their own Go modules."""

from pathlib import Path
from typing import Any, Literal

import yaml
from go_modules import sources


def gateway_api(channel: Literal["standard", "experimental"] = "standard") -> list[dict[str, Any]]:
    """`standard` serves each kind as v1 only; `experimental` serves TLSRoute and TCPRoute as v1alpha2 as well."""
    folder = sources("sigs.k8s.io/gateway-api") / "config/crd" / channel
    kinds = ("gateways", "httproutes", "tlsroutes", "tcproutes")
    return [crd for kind in kinds for crd in definitions(folder / f"gateway.networking.k8s.io_{kind}.yaml")]


def istio() -> list[dict[str, Any]]:
    """Gateway and VirtualService; the other kinds of Istio's file are nothing to us."""
    file = sources("istio.io/api") / "kubernetes/customresourcedefinitions.gen.yaml"
    wanted = ("gateways.networking.istio.io", "virtualservices.networking.istio.io")
    return [crd for crd in definitions(file) if crd["metadata"]["name"] in wanted]


def definitions(file: Path) -> list[dict[str, Any]]:
    """By libyaml: the files have a megabyte, for which the loader in Python takes ten seconds."""
    return list(yaml.load_all(file.read_text(), Loader=yaml.CSafeLoader))
