"""The config that the console shows: the one in force, to the leaf, with the source of each value, without secrets."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from consoles import Place

from pulsar_ingress_proxy.app import runner
from pulsar_ingress_proxy.config import Config, load
from pulsar_ingress_proxy.config.model import json_schema
from pulsar_ingress_proxy.console.settings import lookup_property

SECRET = "c2VjcmV0LXRva2Vu"


def read(place: Place, file: Path, text: str, **environ: str) -> Config:
    """The config of the place, with this text before it, from a file."""
    own = yaml.safe_dump({key: value for key, value in place.keys.items() if f"\n{key}:" not in f"\n{text}"})
    file.write_text(text + own)
    return load(file, environ)


async def settings(place: Place) -> dict[str, tuple[Any, Any]]:
    """By key: the value, and the line, the variable or the kind of its source."""
    found = {}
    for one in (await place.api("config"))["settings"]:
        found[one["key"]] = (one["value"], one["line"] or one["variable"] or one["source"])
    return found


def leaves(schema: dict[str, Any], node: dict[str, Any], path: str = "") -> set[str]:
    """The keys of a schema that hold no record of keys."""
    if "$ref" in node:
        node = schema["$defs"][node["$ref"].rpartition("/")[2]]
    if "properties" not in node:
        return {path}
    below = (leaves(schema, value, f"{path}.{key}".strip(".")) for key, value in node["properties"].items())
    return set().union(*below)


async def test_each_key_has_its_value_and_the_line_or_variable_that_sets_it(place: Place, tmp_path: Path) -> None:
    text = """\
miss: reject
redirects:
  maxHops: 7
  lookup: follow
  peers: [a.example,
    b.example]
ingresses:
  - name: public
    hosts:
      - pulsar.example.com
      - "*.pulsar.example.com"
    listener: external
    lookupProperties: {rack: eu-1a}
  - {name: other, hosts: [other.example.com], listener: external}
trustedProxies: []
advertisedListeners:
  - broker: b-{n}.svc
    listeners: >-
      internal:http://b-{n}.svc:8080,
      external:https://b-{n}.example,
      external:pulsar+ssl://b-{n}.example:{n+6651}
lookupListenerName: null
drainSeconds: .inf
"""
    environ = {
        "PULSAR_INGRESS_REDIRECTS__LOOKUP": "pass",
        "PULSAR_INGRESS_TIMEOUTS": '{"connect": 1.5}',
        "PULSAR_INGRESS_EVENTS__PATH": "null",
    }
    await place.sidecar.reload(read(place, tmp_path / "config.yaml", text, **environ))
    found = await settings(place)
    expected = {
        "clusterName": ("pulsar", "default"),
        "miss": ("reject", 1),
        "redirects.maxHops": (7, 3),
        "redirects.lookup": ("pass", "PULSAR_INGRESS_REDIRECTS__LOOKUP"),
        "redirects.admin": ("auto", "default"),
        "redirects.peers.0": ("a.example", 5),
        "redirects.peers.1": ("b.example", 6),
        "timeouts.connect": (1.5, "PULSAR_INGRESS_TIMEOUTS"),
        "timeouts.lookup": (30, "default"),
        "events.path": (None, "PULSAR_INGRESS_EVENTS__PATH"),
        "ingresses.0.name": ("public", 8),
        "ingresses.0.hosts.1": ("*.pulsar.example.com", 11),
        "ingresses.0.expose": (None, "default"),
        "ingresses.1.lookupProperties": ([], "default"),
        "ingresses.0.lookupProperties.rack": ("eu-1a", 13),
        "trustedProxies": ([], 15),
        "advertisedListeners.0.broker": ("b-{n}.svc", 17),
        "advertisedListeners.0.listeners.internal": ("http://b-{n}.svc:8080", 18),
        "advertisedListeners.0.listeners.external": ("https://b-{n}.example, pulsar+ssl://b-{n}.example:{n+6651}", 18),
        "lookupListenerName": (None, 22),
        "drainSeconds": (".inf", 23),
        "shadow": (False, "default"),
        "kubernetes.namespaces": ([], "default"),
    }
    assert {key: found[key] for key in expected} == expected
    answer = await place.api("config")
    assert (answer["file"], answer["generation"]) == (str(tmp_path / "config.yaml"), 2)


async def test_every_key_of_the_schema_is_there(place: Place) -> None:
    schema = json_schema()
    shown = {key.rstrip("0123456789").rstrip(".") for key in await settings(place)}
    missing = leaves(schema, schema) - shown - {"ingresses", "advertisedListeners"}
    assert missing == set()
    assert any(key.startswith("advertisedListeners.2.listeners.internal") for key in await settings(place))


async def test_defaults_are_those_of_the_model(place: Place) -> None:
    found = await settings(place)
    limits = Config.model_fields["limits"].default
    for name, field in type(limits).model_fields.items():
        assert found[f"limits.{field.alias}"] == (getattr(limits, name), "default")
    assert found["trustedProxies.0"] == ("127.0.0.0/8", "default")


async def test_key_of_a_merged_mapping_has_the_line_of_its_record(place: Place, tmp_path: Path) -> None:
    ingress = "{<<: {expose: [lookup]},\n    name: public, hosts: [a.example], listener: external}"
    await place.sidecar.reload(read(place, tmp_path / "config.yaml", f"ingresses:\n  - {ingress}\n"))
    found = await settings(place)
    assert found["ingresses.0.expose.0"] == ("lookup", 2)
    assert found["ingresses.0.name"] == ("public", 3)


async def test_socket_after_one_that_is_named_twice_does_not_get_the_others_line(place: Place, tmp_path: Path) -> None:
    one, other = "http://127.0.0.1:0", "external:http://localhost:0"
    text = f"bindAddresses:\n  - {one}\n  - {one}\n  - {other}\n"
    await place.sidecar.reload(read(place, tmp_path / "config.yaml", text))
    found = await settings(place)
    assert found["bindAddresses.0"] == (one, 1)
    assert found["bindAddresses.1"] == (other, 1)


async def test_config_made_in_memory_has_no_lines(place: Place) -> None:
    answer = await place.api("config")
    assert answer["file"] is None
    assert {(one["source"], one["line"]) for one in answer["settings"]} == {("file", None), ("default", None)}


async def test_refused_reload_leaves_the_config_in_force_and_says_why(place: Place, tmp_path: Path) -> None:
    before = (await place.api("config"))["settings"]
    file = tmp_path / "config.yaml"
    file.write_text(yaml.safe_dump(place.keys) + "leaks: blok\n")
    await runner._reload(place.sidecar, file)
    answer = await place.api("config")
    assert answer["settings"] == before
    assert ": leaks: 'blok' is not one of rewrite, block, observe" in answer["reloadProblem"]


async def test_no_line_is_shown_while_the_file_is_another_than_the_config_in_force(
    place: Place, tmp_path: Path
) -> None:
    file = tmp_path / "config.yaml"
    await place.sidecar.reload(read(place, file, "miss: reject\n"))
    assert (await settings(place))["miss"] == ("reject", 1)
    file.write_text("# a line more\nmiss: rejekt\n")
    await runner._reload(place.sidecar, file)
    assert (await settings(place))["miss"] == ("reject", "file")


async def test_keys_that_only_a_start_puts_in_force_keep_their_value_and_say_so(place: Place, tmp_path: Path) -> None:
    address = f"127.0.0.1:{place.sidecar.console_port}"
    text = f"clusterName: other\nconsole: {{address: '{address}'}}\nevents: {{path: /nowhere}}\nmiss: reject\n"
    await place.sidecar.reload(read(place, tmp_path / "config.yaml", text))
    answer = (await place.api("config"))["settings"]
    settings = {one["key"]: (one["value"], one["pending"], one["line"]) for one in answer}
    assert settings["clusterName"] == ("pulsar", True, None)
    assert settings["console.address"] == ("127.0.0.1:0", True, None)
    assert settings["events.path"] == (None, True, None)
    assert settings["events.compress"] == ("gzip", False, None)
    assert settings["metrics.address"][:2] == ("127.0.0.1:0", False)
    assert settings["miss"] == ("reject", False, 4)
    assert (await place.api("status"))["cluster"] == "pulsar"


@pytest.mark.parametrize(
    "name",
    ["Auth", "token", "jwt", "Bearer", "client-secret", "passwd", "pw", "creds", "private", "API_KEY",
     "cookie", "sessionId", "signature"],
)  # fmt: skip
def test_lookup_property_whose_name_sounds_like_a_credential_is_hidden(name: str) -> None:
    assert lookup_property(name, SECRET) == "hidden"


@pytest.mark.parametrize("name", ["rack", "zone", "region"])
def test_lookup_property_of_a_place_is_shown(name: str) -> None:
    assert lookup_property(name, "eu-1a") == "eu-1a"


async def test_credential_in_lookup_properties_is_in_no_answer_of_the_api(place: Place) -> None:
    def ingress(secret: str) -> dict[str, Any]:
        properties = {"authToken": secret, "jwt": secret, "rack": "eu-1a"}
        return {**place.keys["ingresses"][0], "lookupProperties": properties}

    for number in range(2):
        await place.reload(ingresses=[ingress(f"{SECRET}-{number}")])
    found = await settings(place)
    for name in ("authToken", "jwt"):
        assert found[f"ingresses.0.lookupProperties.{name}"][0] == "hidden"
    assert found["ingresses.0.lookupProperties.rack"][0] == "eu-1a"
    for path in ("config", "generations", "status", "ingresses", "findings"):
        assert SECRET not in str(await place.api(path))
