"""`run`: a file that changes, a file that is no good, and a process that holds, reloads and ends."""

import asyncio
import json
import os
import signal
import ssl
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
import trustme
from raw import OK, Message, RawBroker, Wire, answer_all
from running_sidecar import while_running
from runs import Looks, Place, apart, beside
from tls_helpers import client_context, pair_files
from wires import dialed, free_port

from pulsar_ingress_proxy.app import runner

FORCE = "generation {} is in force"


def tell(request: Message) -> bytes:
    """Answer with the listener that was asked for."""
    (listener,) = request.head.all(b"x-pulsar-listenername") or [b"none"]
    return OK.replace(b"2\r\n\r\nok", b"%d\r\n\r\n%b" % (len(listener), listener))


@pytest.fixture
async def place(tmp_path: Path, broker: RawBroker) -> AsyncIterator[Place]:
    """A config file with a broker that answers."""
    async with while_running(answer_all(broker, tell)):
        yield Place(tmp_path / "config.yaml", broker.url)


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> Looks:
    """Looks follow one another closely, and are counted."""
    looks = Looks()
    monkeypatch.setattr(runner, "POLL_SECONDS", 0.01)
    monkeypatch.setattr(runner, "RETRY_POLLS", 1)
    monkeypatch.setattr(runner, "_text", looks)
    return looks


# Reload.


def in_place(place: Place, text: str) -> None:
    place.path.write_text(text)


def rename(place: Place, text: str) -> None:
    new = place.path.with_suffix(".new")
    new.write_text(text)
    new.replace(place.path)


def swap_links(place: Place, text: str) -> None:
    """As the kubelet does: a folder of its own for each version, and `..data` renamed to lead to the newest."""
    folder = place.path.parent
    version = folder / f"..{len(list(folder.iterdir()))}"
    version.mkdir()
    (version / place.path.name).write_text(text)
    (folder / "..new").symlink_to(version.name)
    (folder / "..new").rename(folder / "..data")
    if not place.path.is_symlink():
        place.path.symlink_to(f"..data/{place.path.name}")


@pytest.mark.parametrize("change", [in_place, rename, swap_links])
async def test_changed_config_file_is_reloaded_however_it_is_replaced(
    place: Place, looks: Looks, change: Callable[[Place, str], None]
) -> None:
    change(place, place.text())
    async with beside(place) as said:
        assert (await place.ask()).body == b"first"
        for generation, listener in ((2, "second"), (3, "third")):
            change(place, place.text(lookupListenerName=listener))
            await said.until(FORCE.format(generation))
            assert (await place.ask()).body == listener.encode()
            assert await place.number("snapshot_generation") == generation
            assert await place.number("config_reloads_total", result="success") == generation - 1
        assert await place.number("config_reloads_total", result="failure") == 0
        assert await place.number("config_last_reload_successful") == 1


async def test_sighup_reloads_config_file_even_if_unchanged(place: Place) -> None:
    place.write()
    async with beside(place) as said:
        place.write(lookupListenerName="second")
        os.kill(os.getpid(), signal.SIGHUP)
        await said.until(FORCE.format(2))
        assert (await place.ask()).body == b"second"
        os.kill(os.getpid(), signal.SIGHUP)  # an explicit request reloads, changed or not
        await said.until(FORCE.format(3))
        assert await place.number("config_reloads_total", result="success") == 2


async def test_config_file_with_unchanged_content_is_not_reloaded(place: Place, looks: Looks) -> None:
    place.write()
    async with beside(place) as said:
        os.utime(place.path)
        await looks.more(3)
        assert said.count("is in force") == 0
        assert await place.number("snapshot_generation") == 1


BAD = {
    "not YAML": "lookupListenerName: [",
    "an unknown key": "lookupListenerNam: second",
    "not UTF-8": None,
    "gone": "",
}


@pytest.mark.parametrize("kind", BAD)
async def test_bad_config_file_leaves_old_config_in_force_and_is_logged_once(
    place: Place, looks: Looks, kind: str
) -> None:
    place.write()
    async with beside(place) as said:
        if kind == "gone":
            place.path.unlink()
        elif kind == "not UTF-8":
            place.path.write_bytes(b"\xff")
        else:
            place.path.write_text(f"{place.text()}{BAD[kind]}\n")
        line = await said.until("not reloaded, the old config stays in force: ")
        assert str(place.path) in line
        await looks.more(3)
        assert said.count("not reloaded") == 1
        assert (await place.ask()).body == b"first"
        assert await place.probe("/readyz") == (200, "ok\n")
        assert await place.number("snapshot_generation") == 1
        assert await place.number("config_reloads_total", result="failure") == 1
        assert await place.number("config_last_reload_successful") == 0
        place.write(lookupListenerName="second")
        await said.until(FORCE.format(2))
        assert (await place.ask()).body == b"second"
        assert await place.number("config_reloads_total", result="success") == 1
        assert await place.number("config_last_reload_successful") == 1


async def test_every_fault_of_a_bad_config_file_is_logged_on_its_own_line(place: Place, looks: Looks) -> None:
    place.write()
    async with beside(place) as said:
        place.write(lookupListenerNam="x", drainSeconds=-1)
        await said.until("not reloaded", times=2)
        assert said.count("lookupListenerNam: unknown key") == said.count("drainSeconds: ") == 1
        assert await place.number("config_reloads_total", result="failure") == 1


async def test_reload_succeeds_once_the_certificate_that_new_config_names_appears(place: Place, looks: Looks) -> None:
    """Secrets and ConfigMaps arrive in any order: what was missing is tried again, without a word until it is there."""
    place.write()
    folder, port = place.path.parent, free_port()
    async with beside(place) as said:
        place.write(
            lookupListenerName="second",
            bindAddresses=[*place.values["bindAddresses"], f"https://127.0.0.1:{port}"],
            tls={"certificate": str(folder / "tls.crt"), "key": str(folder / "tls.key")},
        )
        await said.until("tls.crt cannot be read")
        await looks.more(3)
        assert said.count("not reloaded") == 2, "one for each file"
        assert await place.number("config_reloads_total", result="failure") == 1
        assert (await place.ask()).body == b"first"
        ca = trustme.CA()
        pair_files(folder, ca.issue_cert("localhost"))
        await said.until(FORCE.format(2))
        assert (await place.ask()).body == b"second"
        assert await accepts(ca, port)


async def accepts(ca: trustme.CA, port: int) -> bool:
    """Whether a client that trusts this CA accepts the certificate that it gets to see."""
    try:
        (await dialed(Wire, port, client_context(ca), "localhost")).abort()
    except ssl.SSLError:
        return False
    return True


async def test_changed_certificate_files_take_effect_without_config_reload(place: Place, looks: Looks) -> None:
    folder, (first, second) = place.path.parent, (trustme.CA(), trustme.CA())
    pair_files(folder, first.issue_cert("localhost"))
    place.write(
        bindAddresses=[f"https://127.0.0.1:{place.port}"],
        tls={"certificate": str(folder / "tls.crt"), "key": str(folder / "tls.key")},
    )
    async with beside(place) as said:
        assert await accepts(first, place.port)
        pair_files(folder, second.issue_cert("localhost"))
        await said.until("reloaded certificates")
        assert await accepts(second, place.port)
        assert not await accepts(first, place.port)
        assert await place.number("snapshot_generation") == 1


# Hold.


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("bindAddresses: [", "is not YAML"),
        ("{}\nlookupListenerNam: x", "unknown key; did you mean lookupListenerName?"),
        (None, "cannot be read: No such file or directory"),
        ("{}\ntls: {{certificate: none.crt, key: none.key}}", "none.crt cannot be read"),
        ("brokers: {{}}", "brokers.webServiceUrl: is missing"),
    ],
)
async def test_hold_answers_503_with_the_reason_until_config_is_fixed(
    place: Place, looks: Looks, monkeypatch: pytest.MonkeyPatch, text: str | None, reason: str
) -> None:
    """503 with the reason wherever it was to be served, alive but not ready; and when it is mended, it serves."""
    scheme = "https" if text and "tls" in text else "http"
    # Where the file does not say, these do; else it would be 0.0.0.0:8080.
    monkeypatch.setenv("PULSAR_INGRESS_BIND_ADDRESSES", f"{scheme}://127.0.0.1:{place.port}")
    monkeypatch.setenv("PULSAR_INGRESS_METRICS__ADDRESS", f"127.0.0.1:{place.metrics_port}")
    if text is not None:
        place.path.write_text(text.format(place.text()))
    async with beside(place, hold=True) as said:
        assert reason in await said.until("holding: ")
        answer = await place.ask()
        assert answer.status == 503
        told = json.loads(answer.body)["reason"]
        assert told.startswith("bad-config: ")
        assert reason in told
        assert answer.head.one(b"content-type").startswith(b"application/json")
        assert answer.head.one(b"retry-after") == b"5"
        assert await place.probe("/livez") == (200, "ok\n")
        status, body = await place.probe("/readyz")
        assert status == 503
        assert reason in body
        assert await place.number("config_last_reload_successful") == 0
        await looks.more(5)
        assert said.count(reason) == 1  # told once, however long it takes
        monkeypatch.delenv("PULSAR_INGRESS_BIND_ADDRESSES")
        place.write()
        await said.until("serving ")
        assert (await place.ask()).body == b"first"
        assert await place.probe("/readyz") == (200, "ok\n")
        assert await place.number("config_last_reload_successful") == 1


async def test_hold_listens_on_every_configured_socket_that_can_be_bound(place: Place, looks: Looks) -> None:
    """Over TLS where the certificate is good, and also where one of the sockets cannot be had."""
    ca, folder, port = trustme.CA(), place.path.parent, free_port()
    pair_files(folder, ca.issue_cert("localhost"))
    blocker = await asyncio.start_server(lambda reader, writer: writer.close(), "127.0.0.1", 0)
    taken = blocker.sockets[0].getsockname()[1]
    place.write(
        bindAddresses=f"http://127.0.0.1:{taken},http://127.0.0.1:{place.port},external:https://127.0.0.1:{port}",
        tls={"certificate": str(folder / "tls.crt"), "key": str(folder / "tls.key")},
    )
    async with beside(place, hold=True) as said:
        assert f"bindAddresses http://127.0.0.1:{taken}: cannot be bound" in await said.until("holding: ")
        await said.until("holding, but could not bind")
        assert (await place.ask()).status == 503
        assert await place.probe("/livez") == (200, "ok\n")
        assert await accepts(ca, port)
        blocker.close()
        await blocker.wait_closed()
        await said.until("serving ")  # without a change of the file
        assert (await place.ask(port=taken)).body == b"first"


# Processes.


async def test_process_holds_then_serves_reloads_and_exits_0_on_sigterm(place: Place) -> None:
    place.write(drainSeconds=-1)
    async with apart(place.path, "--hold") as process:
        assert "drainSeconds" in (await process.said("holding: "))["message"]
        assert (await place.ask()).status == 503
        place.write()
        process.send(signal.SIGHUP)
        await process.said("serving ")
        assert (await place.ask()).body == b"first"
        place.write(lookupListenerName="second")
        await process.said(FORCE.format(2))  # by itself
        assert (await place.ask()).body == b"second"
        process.send(signal.SIGTERM)
        assert await process.ended() == 0
        assert process.lines[-1]["message"] == "shutting down"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_holding_process_logs_no_exception_for_malformed_requests_and_exits_0_on_sigterm_or_sigint(
    place: Place, number: signal.Signals
) -> None:
    place.write(drainSeconds=-1)
    async with apart(place.path, "--hold") as process:
        await process.said("holding: ")
        for port in (place.port, place.metrics_port):
            for data in (b"\0\r\n\r\n", b"GET / HTTP/1.1\r\n\r\n", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"):
                assert (await place.ask(data, port)).status == 400
        process.send(number)
        assert await process.ended() == 0
        assert not [line for line in process.lines if "exception" in line]


async def test_process_without_hold_prints_config_faults_and_exits_2(place: Place) -> None:
    place.write(drainSeconds=-1, lookupListenerNam="x")
    async with apart(place.path) as process:
        assert await process.ended() == 2
        first, second = process.output.decode().splitlines()
        assert first.startswith(f"{place.path}:")
        assert "drainSeconds: " in first
        assert "lookupListenerNam: " in second
