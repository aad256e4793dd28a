"""The sidecar knows every command of Pulsar, and every address in them: held against the classes of real brokers."""

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import artifacts
import jvm
import pytest
from google.protobuf.descriptor import Descriptor

from pulsar_ingress_proxy.binary.commands import CARRIERS, KNOWN, NEWEST_VERSION
from pulsar_ingress_proxy.binary.commands_pb2 import Command, FeatureFlags

PROGRAM = Path(__file__).with_name("CommandFields.java")
NOT_BROKERS = {
    "2.6": "proxytobrokerurl",  # from clients, to a proxy
    "26.11": "address",  # of a consumer
}
LINES = ["4.0", pytest.param("4.2", marks=pytest.mark.full), pytest.param("5.0", marks=pytest.mark.full)]


def addresses(message: Descriptor, path: str = "") -> Iterator[str]:
    """Where the sidecar reads addresses, by the numbers of the fields that lead there."""
    for field in message.fields:
        place = f"{path}.{field.number}".lstrip(".")
        if field.message_type is not None:
            yield from addresses(field.message_type, place)
        elif field.name in ("url", "url_tls"):
            yield place


@pytest.mark.parametrize("line", LINES)
def test_every_command_and_every_address_of_a_broker_is_known(line: str) -> None:
    command = jvm.command(artifacts.classpath(artifacts.RELEASES[line]), str(PROGRAM), heap=100)
    said = subprocess.run(command, capture_output=True, text=True, timeout=50, check=True).stdout
    numbers = {
        what: {int(number) for number in re.findall(rf"^{what} (\d+)$", said, re.MULTILINE)}
        for what in ("type", "version", "flag")
    }
    texts = dict(re.findall(r"^text (\S+) (\w+)$", said, re.MULTILINE))
    found = {place: name for place, name in texts.items() if re.search("url|uri|address|host", name)}
    ours = set(addresses(cast(Descriptor, Command.DESCRIPTOR)))
    assert {int(place.partition(".")[0]) for place in ours} == set(CARRIERS)
    assert found.keys() - ours == NOT_BROKERS.keys()
    assert numbers["type"] <= KNOWN
    assert max(numbers["version"]) <= NEWEST_VERSION
    assert numbers["flag"] <= {field.number for field in FeatureFlags.DESCRIPTOR.fields}
    if line == "5.0":  # the newest
        assert ours == found.keys() - NOT_BROKERS.keys()
        assert sorted(numbers["type"]) == sorted(KNOWN)
        assert max(numbers["version"]) == NEWEST_VERSION
