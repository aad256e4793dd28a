"""`init`: what it prints is good as it is, and options that make no sense are refused with what would be right."""

from pathlib import Path
from typing import Any

import chart_model
import pytest
import yaml

from pulsar_ingress_proxy.cli import main
from pulsar_ingress_proxy.tools.init import GATEWAYS

TEMPLATE = "mq-{n}.mq.messaging.svc.example.internal"


def printed(capsys: pytest.CaptureFixture[str], *options: str) -> str:
    assert main(["init", *options]) == 0
    return capsys.readouterr().out


@pytest.mark.parametrize(
    "options",
    [
        (),
        ("--brokers", "http://pulsar-broker:8080", "--host", "mq.example.org", "--listener", "partner"),
        ("--brokers", "https://mq.messaging.svc:8443"),
        ("--brokers", TEMPLATE),
    ],
)
def test_config_passes_check_without_warnings(
    options: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "config.yaml"
    config.write_text(printed(capsys, *options))
    assert main(["check", "--strict", "--config", str(config)]) == 0, capsys.readouterr().err


def test_options_fill_the_config_in(capsys: pytest.CaptureFixture[str]) -> None:
    options = ("--brokers", "http://mq.messaging.svc:8080", "--host", "mq.example.org", "--listener", "partner")
    config = yaml.safe_load(printed(capsys, *options))
    assert config["brokers"]["webServiceUrl"] == ["http://mq.messaging.svc:8080"]
    (ingress,) = config["ingresses"]
    assert (ingress["hosts"], ingress["listener"]) == (["mq.example.org", "*.mq.example.org"], "partner")
    (line,) = config["advertisedListeners"]
    assert line["broker"] == "mq-{n}.mq.messaging.svc.cluster.local"
    assert "partner:pulsar+ssl://broker-{n}.mq.example.org:6651" in line["listeners"]


def values(capsys: pytest.CaptureFixture[str], *options: str) -> Any:
    return yaml.safe_load(printed(capsys, "--helm", *options))


@pytest.mark.parametrize("gateway", GATEWAYS)
def test_values_are_those_of_the_chart(gateway: str, capsys: pytest.CaptureFixture[str]) -> None:
    found = values(capsys, "--gateway", gateway, "--host", "mq.example.org", "--brokers", "5")
    chart_model.Values.model_validate(found | {"config": chart_model.with_defaults(found["config"], "sidecar")})
    assert found["gateway"]["type"] == gateway
    assert (found["routes"]["host"], found["routes"]["brokers"]) == ("mq.example.org", 5)


def test_values_name_what_the_chart_cannot_derive(capsys: pytest.CaptureFixture[str]) -> None:
    found = values(capsys, "--gateway", "istio", "--brokers", TEMPLATE, "--brokers", "2", "--image", "example.org/pip")
    assert "brokerTemplate" not in found["routes"]
    assert found["config"]["brokers"]["webServiceUrl"] == ["http://mq.messaging.svc.example.internal:8080"]
    assert found["image"]["repository"] == "example.org/pip"
    other = "broker{n}.mq.messaging.svc.cluster.local"
    found = values(capsys, "--gateway", "istio", "--brokers", other, "--listener", "partner")
    assert (found["routes"]["brokerTemplate"], found["routes"]["listener"]) == (other, "partner")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--helm", "--gateway", "nginx"), "it is one of istio, gateway-api, envoy-gateway, traefik"),
        (("--helm",), "--helm: needs --gateway, which is one of istio"),
        (("--gateway", "istio"), "--gateway: is for --helm"),
        (("--image", "pip"), "--image: is for --helm"),
        (("--host", "pulsar"), "--host pulsar: is not a host name"),
        (("--host", "pulsar.example.com\nshadow: true"), "is not a host name"),
        (("--listener", "a b"), "--listener a b: is not a listener's name"),
        (("--brokers", "3"), "a number is for --helm"),
        (("--brokers", "broker-{m}.example.com"), "nor a name with {n}"),
        (("--brokers", "http://a b"), "is neither a URL"),
        (("--helm", "--gateway", "istio", "--brokers", "99"), "up to 60 brokers"),
        (("--helm", "--gateway", "istio", "--brokers", "http://brokers.example.com"), "is not a Service"),
    ],
)
def test_bad_options_exit_2_with_one_line(
    options: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["init", *options]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert said in err
