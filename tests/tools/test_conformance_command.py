"""The command `conformance`: its options, what it prints and writes, its exit codes."""

import asyncio
import json
import re
import sys
from pathlib import Path
from typing import Any, get_args
from xml.etree import ElementTree

import pytest
import yaml
from client_place import HOST, Place
from running_sidecar import merged

from pulsar_ingress_proxy.cli import main
from pulsar_ingress_proxy.config import load_mapping
from pulsar_ingress_proxy.routing.snapshot import build
from pulsar_ingress_proxy.tools.conformance.command import duration
from pulsar_ingress_proxy.tools.conformance.expectations import TOPIC, expect
from pulsar_ingress_proxy.tools.conformance.verdicts import HELP, Cause
from pulsar_ingress_proxy.tools.explain import CannotExplain

ROOT = Path(__file__).parent.parent.parent
CONFIG = {
    "bindAddresses": ["http://127.0.0.1:0"],
    "brokers": {"webServiceUrl": ["http://127.0.0.1:1"]},
    "ingresses": [{"name": "public", "hosts": [HOST], "listener": "external"}],
    "advertisedListeners": [{"broker": "b-{n}", "listeners": f"external:https://b-{{n}}.{HOST}"}],
}

URL = ("--url", f"https://{HOST}")


async def run(place: Place, *arguments: str | Path, **keys: Any) -> int:
    """The command, with the config of the place."""
    config = place.folder / "config.yaml"
    config.write_text(yaml.safe_dump(merged(place.config, keys)))
    common = ("conformance", "--config", config, "--cacert", place.ca)
    return await asyncio.to_thread(main, [*map(str, common), *map(str, arguments)])


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "config.yaml"
    path.write_text(yaml.safe_dump(CONFIG))
    return path


async def test_table_is_aligned_and_ends_with_a_summary(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    place.cluster.own(TOPIC, 2)
    place.names.known.remove(f"broker-2.{HOST}")
    url = place.url("https")
    async with place.sidecar():
        assert await run(place, "--url", url) == 1
    out, err = capsys.readouterr()
    assert err == ""
    *lines, summary = out.splitlines()
    where = f"{url}  external  "
    assert [line[: len(f"ok    {where}addresses")] for line in lines] == [
        f"ok    {where}connect  ",
        f"ok    {where}lookup   ",
        f"ok    {where}redirects",
        f"ok    {where}addresses",
        f"FAIL  {where}brokers  ",
        f"ok    {where}admin    ",
    ]
    assert f"brokers    dns: broker-2.{HOST} does not resolve" in lines[4]
    assert lines[4].endswith("(see docs/conformance.md#dns)")
    assert summary == "5 of 6 checks held, 1 failed"


async def test_json_has_every_check_with_its_cause_and_help(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    place.names.known.remove(HOST)
    async with place.sidecar():
        assert await run(place, "--json", "--url", place.url("https")) == 1
    said = json.loads(capsys.readouterr().out)
    assert said["held"] is False
    first, second, *_ = said["checks"]
    assert first.pop("seconds") >= 0
    assert first == {
        "url": place.url("https"),
        "ingress": "public",
        "listener": "external",
        "check": "connect",
        "result": "failed",
        "text": f"{HOST} does not resolve: Name or service not known",
        "cause": "dns",
        "help": "docs/conformance.md#dns",
    }
    assert (second["result"], second["text"]) == ("skipped", "not tried: connect did not hold")
    assert (second["cause"], second["help"]) == (None, None)


async def test_everything_holds_with_exit_code_0(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    place.binary.answers = [lambda _: place.answer(1)]
    async with place.sidecar():
        assert await run(place, "--url", place.url("https"), place.url("pulsar+ssl"), "--url", place.url("https")) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "11 of 11 checks held"


async def test_token_is_read_from_its_file_and_shown_nowhere(
    place: Place, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place.cluster.token = "good"
    for token, code in (("good", 0), ("sesame", 1)):
        (tmp_path / "token").write_text(f"{token}\n")
        async with place.sidecar():
            assert await run(place, "--url", place.url("https"), "--token-file", tmp_path / "token") == code
    out, err = capsys.readouterr()
    assert "sesame" not in out + err
    assert "credentials: " in out


async def test_junit_file_is_xml_with_a_suite_for_each_url(
    place: Place, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whatever a broker says: a control character would not be XML."""
    said = "\x1b[31m\x00 <nobody> & \ufffe \ud800".encode("utf-8", "surrogatepass")
    place.cluster.metadata.missing_namespaces.add("public/default")
    place.binary.answers = [lambda _: place.failing(said)]
    async with place.sidecar():
        urls = ("--url", place.url("https"), "--url", place.url("pulsar"))
        assert await run(place, *urls, "--junit", tmp_path / "report.xml") == 1
    assert "\x1b" not in capsys.readouterr().out
    root = ElementTree.parse(tmp_path / "report.xml").getroot()
    assert root.tag == "testsuites"
    assert [suite.get("name") for suite in root] == [place.url("https"), place.url("pulsar")]
    for suite in root:
        cases = suite.findall("testcase")
        assert suite.get("tests") == str(len(cases))
        assert suite.get("failures") == str(len(suite.findall("testcase/failure"))) == "1"
        assert suite.get("skipped") == str(len(suite.findall("testcase/skipped"))) == "3"
        assert all(case.get("classname") == suite.get("name") for case in cases)
    assert root.get("tests") == "11"
    assert [failure.get("type") for failure in root.iter("failure")] == ["broker", "broker"]
    assert "<nobody> &" in str(root[1].find("testcase/failure").get("message"))  # type: ignore[union-attr]


class TestBadInput:
    @pytest.mark.parametrize(
        ("arguments", "words"),
        [
            (["--url", "ftp://pulsar.example.com"], "unknown scheme 'ftp': use one of pulsar, pulsar+ssl, http, https"),
            (["--url", "pulsar.example.com"], "is not a URL: write scheme://host:port"),
            (["--url", f"https://{HOST}/lookup"], "is not a URL: write scheme://host:port"),
            (
                ["--url", "https://nobody.example.org"],
                f"no ingress has the host 'nobody.example.org'; there are public ({HOST})",
            ),
            (["--url", f"pulsar://{HOST}"], "no pulsar socket is bound"),
            ([*URL, "--wait", "soon"], "--wait 'soon' is not a duration"),
            ([*URL, "--wait", "2m3"], "--wait '2m3' is not a duration"),
            ([*URL, "--topic", "orders"], "--topic 'orders' is not a topic"),
            (
                [*URL, "--cacert", "absent.pem"],
                "--cacert absent.pem: cannot be read: No such file",
            ),
            ([*URL, "--cacert", __file__], f"--cacert {__file__}: cannot be read: "),
            (
                [*URL, "--token-file", "absent"],
                "--token-file absent: cannot be read: No such file",
            ),
            ([*URL, "--token-file", __file__], "does not hold a token"),
            ([*URL, "--junit", "absent/report.xml"], "cannot be written: No such file"),
        ],
    )
    def test_exits_2_with_one_line(
        self, config: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], words: str
    ) -> None:
        assert main(["conformance", "--config", str(config), *arguments]) == 2
        out, err = capsys.readouterr()
        assert words in err
        assert err.count("\n") == 1
        assert out == ""

    def test_unreadable_config_exits_2(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["conformance", "--config", str(tmp_path / "absent"), "--url", f"https://{HOST}"]) == 2
        assert capsys.readouterr().err.endswith("cannot be read: No such file or directory\n")

    def test_default_listener_is_enough_only_without_ingresses(
        self, config: Path, capsys: pytest.CaptureFixture[str], names: object
    ) -> None:
        config.write_text(yaml.safe_dump({**CONFIG, "lookupListenerName": "external"}))
        assert main(["conformance", "--config", str(config), "--url", "https://nobody.example.org"]) == 2
        config.write_text(yaml.safe_dump({**CONFIG, "lookupListenerName": "external", "ingresses": []}))
        assert main(["conformance", "--config", str(config), "--url", "https://nobody.example.org"]) == 1
        assert "dns: nobody.example.org does not resolve" in capsys.readouterr().out

    @pytest.mark.parametrize(
        ("bind", "default", "listener"),
        [
            ("external:pulsar://127.0.0.1:0", None, "external"),
            ("pulsar://127.0.0.1:0", "external", "external"),
            ("pulsar://127.0.0.1:0", None, None),
        ],
    )
    def test_plain_binary_ingress_needs_a_socket_or_default_with_a_listener(
        self, bind: str, default: str | None, listener: str | None
    ) -> None:
        """Its connections carry no host that an ingress could be found by."""
        keys = {"bindAddresses": [bind], "lookupListenerName": default}
        brokers = {"brokerServiceUrl": ["pulsar://127.0.0.1:1"]}
        snapshot = build(load_mapping({**CONFIG, **keys, "brokers": brokers}))
        if listener is None:
            with pytest.raises(CannotExplain, match="no rule selects a listener"):
                expect(f"pulsar://{HOST}", snapshot)
        else:
            assert expect(f"pulsar://{HOST}", snapshot).listener == listener

    def test_missing_client_is_told_before_anything_is_tried(
        self, config: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setitem(sys.modules, "pulsar", None)
        assert main(["conformance", "--config", str(config), "--url", f"https://{HOST}", "--produce"]) == 2
        told = "--produce needs the package 'pulsar-client': pip install 'pulsar-ingress-proxy[conformance]'\n"
        assert capsys.readouterr().err == told


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("0s", 0), ("90", 90), ("90s", 90), ("2m", 120), ("1m30s", 90), ("1.5h", 5400), ("250ms", 0.25)],
)
def test_durations_have_units(text: str, seconds: float) -> None:
    assert duration(text) == seconds


def headings(page: Path) -> set[str]:
    """The anchors of a page, as GitHub makes them."""
    titles = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("cause", get_args(Cause))
def test_every_cause_has_a_section_that_helps(cause: Cause) -> None:
    page, _, anchor = HELP[cause].partition("#")
    assert anchor in headings(ROOT / page)
