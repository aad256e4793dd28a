"""The fast path of lookups cannot be told from the slow path."""

import asyncio
import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from playbooks import (
    BROKER,
    CLIENT,
    FOLLOW,
    HELLO,
    OTHER,
    ScriptedBroker,
    Stage,
    Start,
    answered,
    followed,
    hello,
    looked_up,
    redirected,
)
from running_sidecar import events_in
from words import (
    LOOKUP,
    LOOKUP_RESPONSE,
    METADATA_ERROR,
    TOPIC,
    command,
    connect,
    failed,
    found,
    lookup,
    message,
    ping,
)

from pulsar_ingress_proxy.binary import fast_path
from pulsar_ingress_proxy.binary.commands_pb2 import Command
from pulsar_ingress_proxy.binary.fast_path import encode_id, join_lookup, split_answer, split_lookup
from pulsar_ingress_proxy.binary.frames import BadFrame, Frame


@pytest.fixture
async def stage(start: Start) -> Stage:
    return await start(ingresses=[{"name": "public", "listener": "external", "lookupProperties": {"rack": "a"}}])


def told(event: dict[str, Any]) -> dict[str, Any]:
    """An event, without what differs each time."""
    found = dict(event)
    for key in ("id", "time", "durationMs", "upstreamMs"):
        assert found.pop(key)
    return found


async def ask(stage: Stage, broker: ScriptedBroker, number: int, **more: Any) -> None:
    tagged = lookup(number, "external", properties=[("rack", "a")], **more)
    await stage.play(
        CLIENT.says(lookup(number, "", **more)),
        BROKER.hears(tagged),
        *answered(number, broker),
    )


@pytest.mark.parametrize("topic", [TOPIC, "persistent://public/default/" + "x" * 300, "persistent://a/b/ö€"])
async def test_fast_path_lookups_are_answered_recorded_and_counted_like_the_first(
    stage: Stage, broker: ScriptedBroker, topic: str
) -> None:
    records = stage.records
    await stage.play(*HELLO)
    for number in (1, 2, 127, 128, 300, 2**32, 2**33, 2**63):
        await ask(stage, broker, number, topic=topic)
    # An answer is learned by its size: 128 and 2**32 are the first ids of theirs. The last is unusually long.
    assert [is_long for is_long, _ in records] == [True, False, False, True, False, True, False, True]
    first, *others = (told(event) for _, event in records[:3])
    assert others == [first, first]
    assert stage.number("listener_hits_total", ingress="public", listener="external", rule="bind") == 8
    assert stage.number("requests_total", kind="lookup", protocol="binary", code="200") == 8
    assert stage.number("request_duration_seconds_count", kind="lookup", protocol="binary") == 8
    assert stage.number("upstream_duration_seconds_count", kind="lookup", protocol="binary") == 8
    assert stage.number("in_flight_requests", protocol="binary") == 0


async def test_fast_path_learned_from_one_client_serves_another_under_its_own_user_agent(
    stage: Stage, broker: ScriptedBroker
) -> None:
    records = stage.records
    await stage.play(*HELLO)
    await ask(stage, broker, 1)
    await stage.connect()
    await stage.play(*hello(connect(f1="Another-v2")))
    await ask(stage, broker, 1)
    assert not records[1][0]
    assert [event["userAgent"] for _, event in records] == ["Pulsar-Test-v1", "Another-v2"]


ENDS: dict[str, bytes] = {
    "a failure": failed(2, METADATA_ERROR, "later"),
    "an answer of another form": found(2, kind=1),
}


@pytest.mark.parametrize("answer", ENDS.values(), ids=ENDS)
async def test_failure_or_answer_of_another_form_does_not_take_the_fast_path(
    stage: Stage, broker: ScriptedBroker, answer: bytes
) -> None:
    records = stage.records
    await stage.play(*HELLO)
    await ask(stage, broker, 1)
    tagged = lookup(2, "external", properties=[("rack", "a")])
    await stage.play(CLIENT.says(lookup(2, "")), BROKER.hears(tagged), BROKER.says(answer), CLIENT.hears(answer))
    is_long, event = records[1]
    assert is_long
    assert event["topic"] == TOPIC
    assert stage.number("in_flight_requests", protocol="binary") == 0


async def test_redirect_is_followed_after_the_fast_path_was_learned(
    start: Start, broker: ScriptedBroker, other: ScriptedBroker
) -> None:
    stage = await start(redirects=FOLLOW)
    await stage.play(
        *HELLO,
        *looked_up(1),
        *answered(1, broker),
        *redirected(2, other),
        *followed(2),
        *answered(2, other, by=OTHER),
    )
    assert [event["hops"] for event in stage.events] == [0, 1]


async def test_fast_path_lookups_cut_off_by_broker_or_client_are_recorded_as_502_or_499(
    stage: Stage, broker: ScriptedBroker
) -> None:
    """A broker that goes, a client that goes, and one that is not answered."""
    await stage.play(*HELLO)
    await ask(stage, broker, 1)
    tagged = lookup(2, "external", properties=[("rack", "a")])
    await stage.play(CLIENT.says(lookup(2, "")), BROKER.hears(tagged), BROKER.leaves, CLIENT.is_left)
    assert stage.events[-1]["status"] == 502
    await stage.connect()
    await stage.play(*HELLO, CLIENT.says(lookup(2, "")), BROKER.hears(tagged), CLIENT.leaves, BROKER.is_left)
    assert stage.events[-1]["status"] == 499
    assert stage.number("in_flight_requests", protocol="binary") == 0


async def test_fast_path_answers_two_lookups_with_the_same_request_id(stage: Stage, broker: ScriptedBroker) -> None:
    await stage.play(*HELLO)
    await ask(stage, broker, 1)
    tagged = lookup(2, "external", properties=[("rack", "a")])
    answer = found(2, broker.outer(), broker.outer("pulsar+ssl"))
    await stage.play(
        CLIENT.says(lookup(2, "")),
        BROKER.hears(tagged),
        CLIENT.says(lookup(2, "")),
        BROKER.hears(tagged),
        BROKER.says(found(2, broker.inner())),
        CLIENT.hears(answer),
        BROKER.says(found(2, broker.inner())),
        CLIENT.hears(answer),
    )
    assert stage.number("in_flight_requests", protocol="binary") == 0


async def test_fast_path_lookup_without_an_answer_in_time_fails_with_broker_timeout(
    start: Start, broker: ScriptedBroker
) -> None:
    stage = await start(timeouts={"lookup": 0.1})
    await stage.play(
        *HELLO,
        *looked_up(1),
        *answered(1, broker),
        *looked_up(2),
        CLIENT.hears(failed(2, METADATA_ERROR, "broker-timeout: the broker gave no answer in time")),
    )
    assert stage.number("in_flight_requests", protocol="binary") == 0


async def test_reload_applies_to_new_lookups_and_not_to_fast_path_lookups_under_way(
    stage: Stage, broker: ScriptedBroker
) -> None:
    """What was asked before them keeps those it began with."""
    await stage.play(*HELLO)
    await ask(stage, broker, 1)
    await stage.play(CLIENT.says(lookup(2, "")), BROKER.hears(lookup(2, "external", properties=[("rack", "a")])))
    await stage.reload(bindAddresses=["partner:pulsar://127.0.0.1:0"])
    partner = broker.outer("pulsar", "partner"), broker.outer("pulsar+ssl", "partner")
    await stage.play(
        CLIENT.says(lookup(3, "")),
        BROKER.hears(lookup(3, "partner")),
        *answered(2, broker),
        BROKER.says(found(3, broker.inner())),
        CLIENT.hears(found(3, *partner)),
    )


async def test_fast_path_lookup_under_way_is_answered_while_the_sidecar_stops(
    stage: Stage, broker: ScriptedBroker
) -> None:
    await stage.play(*HELLO)
    await ask(stage, broker, 1)
    await stage.play(CLIENT.says(lookup(2, "")), BROKER.hears(lookup(2, "external", properties=[("rack", "a")])))
    stopping = asyncio.create_task(stage.sidecar.stop())
    await stage.play(
        CLIENT.says(ping()),
        BROKER.hears(ping()),
        *answered(2, broker),
    )
    await stopping


async def test_lookup_that_names_two_topics_is_recorded_with_the_last_one(stage: Stage, broker: ScriptedBroker) -> None:
    """The last counts, so that the first would stand for something that was not asked."""
    records = stage.records
    await stage.play(*HELLO)
    for number in (1, 2):
        twice = message(f1=TOPIC, f2=number, f3=False) + message(f1="persistent://public/default/hidden")
        stage.client.send(command(LOOKUP, twice))
        assert b"hidden" in await stage.broker.hear()
        stage.broker.send(found(number, broker.inner()))
        await stage.client.hear()
    assert [event["topic"] for _, event in records] == ["persistent://public/default/hidden"] * 2


async def test_many_fast_path_lookups_may_be_answered_in_any_order(stage: Stage, broker: ScriptedBroker) -> None:
    await stage.play(*HELLO)
    await ask(stage, broker, 1)
    numbers = list(range(2, 60))
    for number in numbers:
        stage.client.send(lookup(number, ""))
        assert await stage.broker.hear() == lookup(number, "external", properties=[("rack", "a")])
    random.Random(7).shuffle(numbers)
    for number in numbers:
        stage.broker.send(found(number, broker.inner()))
        assert await stage.client.hear() == found(number, broker.outer(), broker.outer("pulsar+ssl"))


async def test_answers_with_two_urls_take_the_fast_path(stage: Stage, broker: ScriptedBroker) -> None:
    records = stage.records
    await stage.play(*HELLO)
    for number in (1, 2):
        await stage.play(
            CLIENT.says(lookup(number, "")),
            BROKER.hears(lookup(number, "external", properties=[("rack", "a")])),
            BROKER.says(found(number, broker.inner(), broker.inner())),
            CLIENT.hears(found(number, broker.outer(), broker.outer("pulsar+ssl"))),
        )
    assert [is_long for is_long, _ in records] == [True, False]


async def test_fast_path_tells_apart_two_lookup_forms_of_equal_size_for_one_topic(
    stage: Stage, broker: ScriptedBroker
) -> None:
    records = stage.records
    await stage.play(*HELLO)
    for number, authoritative in enumerate((False, True, False, True, True), 1):
        await ask(stage, broker, number, authoritative=authoritative)
    assert [is_long for is_long, _ in records] == [True, True, False, False, False]


async def test_lookup_with_a_request_id_in_an_overlong_varint_is_answered(stage: Stage, broker: ScriptedBroker) -> None:
    """The broker answers with the id as encoders write it."""
    await stage.play(*HELLO)
    for number in (1, 300, 301):
        await ask(stage, broker, number)
    wide = lookup(5 + 2 * 128, "").replace(b"\x85\x02", b"\x85\x00")
    stage.client.send(wide)
    assert Frame(LOOKUP, await stage.broker.hear()).command().lookup.request_id == 5
    stage.broker.send(found(5, broker.inner()))
    assert await stage.client.hear() == found(5, broker.outer(), broker.outer("pulsar+ssl"))
    assert stage.number("in_flight_requests", protocol="binary") == 0


async def test_answered_fast_path_lookups_free_their_in_flight_slot(start: Start, broker: ScriptedBroker) -> None:
    stage = await start(limits={"inFlight": 1})
    await stage.play(*HELLO)
    for number in range(1, 20):
        await stage.play(
            *looked_up(number),
            *answered(number, broker),
        )
    assert stage.number("listener_hits_total") == 19


@pytest.mark.parametrize(("limit", "value"), [("FAST_PATH", 8192), ("_NAMES", 3)])
async def test_fast_path_memory_stays_bounded_while_every_lookup_is_answered(
    stage: Stage, broker: ScriptedBroker, monkeypatch: pytest.MonkeyPatch, limit: str, value: int
) -> None:
    monkeypatch.setattr(fast_path, limit, value)
    await stage.play(*HELLO)
    for number in range(1, 40):
        topic = f"persistent://public/default/{'t' * (number % 7)}"
        stage.client.send(command(LOOKUP, message(f1=topic, f2=number, f3=False, f9=number % 5)))
        asked = Frame(LOOKUP, await stage.broker.hear()).command().lookup
        assert (asked.topic.decode(), asked.request_id, asked.advertised_listener_name) == (topic, number, b"external")
        stage.broker.send(found(number, broker.inner()))
        assert await stage.client.hear() == found(number, broker.outer(), broker.outer("pulsar+ssl"))
    kept = stage.sidecar.binary_servers[0].fast_paths
    assert len(kept._paths) <= 3
    if limit == "FAST_PATH":
        templates = [template for path in kept._paths.values() for template in path.templates.values()]
        topics = sum(len(path.topics) for path in kept._paths.values())
        assert len(templates) + topics + sum(len(each.answers) for each in templates) <= 8
    assert stage.number("listener_hits_total") == 39
    assert stage.number("in_flight_requests", protocol="binary") == 0


async def test_all_fast_path_lookups_are_in_the_event_log_after_stop(
    start: Start, broker: ScriptedBroker, tmp_path: Path
) -> None:
    """Also those that ended last, and those of more than one batch; in the console's rings they are at once."""
    stage = await start(events={"path": str(tmp_path), "compress": "none"})
    await stage.play(*HELLO)
    for number in range(1, 301):
        stage.client.send(lookup(number))
        await stage.broker.hear()
        stage.broker.send(found(number, broker.inner()))
        await stage.client.hear()
    recent = stage.sidecar._context.recorder._recent
    assert recent is not None
    assert [kept.number for kept in recent.after(0)] == list(range(300, 0, -1))
    await stage.sidecar.stop()
    written = events_in(tmp_path)
    assert len({event["id"] for event in written}) == len(written) == 300
    assert [event["time"] for event in written] == sorted(event["time"] for event in written)


@given(st.binary(max_size=300), st.integers(0, 2**64 - 1), st.binary(max_size=200))
def test_split_lookup_finds_topic_id_and_tail_and_joins_back_to_the_same_bytes(
    topic: bytes, number: int, tail: bytes
) -> None:
    data = join_lookup(message(f1=topic, f2=number), tail)
    assert data == command(LOOKUP, message(f1=topic, f2=number) + tail)
    parts = split_lookup(data)
    if number >= 2**63:
        assert parts is None
        return
    assert parts is not None
    assert parts[1:] == (topic, encode_id(number), tail)
    assert join_lookup(parts[0], tail) == data


@given(st.text(max_size=200), st.text(max_size=200), st.integers(0, 2**63 - 1), st.booleans())
def test_split_answer_isolates_the_request_id_unless_a_url_exceeds_127_bytes(
    url: str, url_tls: str, number: int, through: bool
) -> None:
    data = found(number, url, url_tls, through=through)
    parts = split_answer(data)
    if len(url.encode()) >= 128 or len(url_tls.encode()) >= 128:
        assert parts is None
        return
    assert parts is not None
    other = split_answer(found(number ^ 1, url, url_tls, through=through))
    assert other == (parts[0], encode_id(number ^ 1), parts[2])
    assert (parts[1], b"".join(parts)) == (encode_id(number), data)


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(message(f1="pulsar://a:1", f4=7, f3=1), id="the id before what it is"),
        pytest.param(message(f4=7, f1="pulsar://a:1", f3=1), id="the id first"),
        pytest.param(message(f1="pulsar://a:1", f3=1, f4=7) + message(f4=8), id="two ids"),
        pytest.param(message(f3=1, f4=7), id="no URL"),
        pytest.param(message(f1="pulsar://a:1", f4=7), id="not what it is"),
        pytest.param(message(f1="pulsar://a:1", f3=4128, f4=7), id="what it is in two bytes"),
    ],
)
def test_split_answer_declines_answers_of_another_form(answer: bytes) -> None:
    assert split_answer(command(LOOKUP_RESPONSE, answer)) is None
    assert split_answer(command(LOOKUP_RESPONSE, message(f1="pulsar://a:1", f3=1, f4=7), b"payload")) is None


@pytest.mark.parametrize("size", [0, 12, 141, 1024, 4096])
def test_split_lookup_declines_data_of_a_size_that_no_lookup_frame_has(size: int) -> None:
    assert split_lookup((b"\xff\x0a\x01t\x10\x01" + bytes(size))[:size]) is None


@given(st.binary(max_size=60))
def test_split_lookup_never_disagrees_with_the_protobuf_parser(body: bytes) -> None:
    data = join_lookup(body, b"")
    parts = split_lookup(data)
    if parts is None:
        return
    try:
        parsed = Frame(LOOKUP, data).command().lookup
    except BadFrame:
        return  # the slow path would not cache it either
    rest = Command.FromString(message(f1=LOOKUP, f23=parts[3])).lookup
    if not rest.HasField("topic") and not rest.HasField("request_id"):
        assert (parsed.topic, encode_id(parsed.request_id)) == parts[1:3]
