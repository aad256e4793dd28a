"""The checker of the fault suite finds each kind of violation, and nothing where there is none."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from checker import Loss, Recorded, seen, violations
from histories import Operation, Receipt, checksum, inside, outside, owner, redirects

MARK, MISS, PUT, BINARY = "h1x", "h2x", "h3x", "b4x"
BODY, ANSWER = checksum(b"body"), checksum(b"answer")
ADDRESS = f"https://broker-{owner(MARK)}.pulsar.example.com"


def operations() -> dict[str, Operation]:
    """A lookup, one to be refused, an admin call with a body, and a binary lookup; all as they should be."""
    listed = [
        Operation(
            MARK, "http", "lookup", "GET", "external", 1.0, ended=1.1, outcome="answered", status=200, id="i-1",
            answer_mark=MARK, addresses=(ADDRESS,),
        ),
        Operation(
            MISS, "http", "lookup", "GET", "", 2.0, ended=2.1, outcome="answered", status=400, reason="no-rule",
            id="i-2",
        ),
        Operation(
            PUT, "http", "admin", "PUT", "external", 3.0, broker=1, sent=BODY, ended=3.1, outcome="answered",
            status=200, id="i-3", answer_mark=PUT, answer_sum=ANSWER,
        ),
        Operation(
            BINARY, "binary", "lookup", "", "partner", 4.0, ended=4.1, outcome="answered", status=307,
            answer_mark=BINARY, addresses=(f"pulsar://broker-{owner(BINARY)}.pulsar.example.org:6650",),
        ),
    ]  # fmt: skip
    return {one.mark: one for one in listed}


def receipts() -> dict[str, Receipt]:
    listed = [
        Receipt(MARK, 0, "http", "lookup", "GET", ("external",), checksum(b""), answered=ANSWER),
        Receipt(PUT, 1, "http", "admin", "PUT", (), BODY, answered=ANSWER),
        Receipt(BINARY, 2, "binary", "lookup", "", ("partner",), checksum(b"")),
    ]
    return {one.mark: one for one in listed}


def event(**fields: Any) -> dict[str, Any]:
    return {"protocol": "http", "kind": "lookup", "userAgent": None, "topic": None, "listener": None, **fields}


def events() -> dict[str, dict[str, Any]]:
    topic = f"persistent://public/default/{BINARY}"
    return {
        MARK: event(id="i-1", userAgent=MARK, status=200, listener="external"),
        MISS: event(id="i-2", userAgent=MISS, status=400),
        PUT: event(id="i-3", userAgent=PUT, status=200, kind="admin", listener="external"),
        BINARY: event(id="i-4", protocol="binary", topic=topic, status=307, listener="partner"),
    }


REQUESTS = {"lookup": 3, "admin": 1, "other": 5}


class History:
    """What both sides saw, to be changed by one mark."""

    def __init__(self) -> None:
        self.operations, self.receipts, self.events = operations(), receipts(), events()
        self.more: list[Receipt] = []
        self.recorded: dict[str, Any] = {"requests": REQUESTS}
        self.losses: list[Loss] = []

    def client(self, mark: str, **fields: Any) -> None:
        self.operations[mark] = replace(self.operations[mark], **fields)

    def broker(self, mark: str, **fields: Any) -> None:
        self.receipts[mark] = replace(self.receipts[mark], **fields)

    def again(self, mark: str, /, **fields: Any) -> None:
        """A broker receives it once more."""
        self.more.append(replace(self.receipts[mark], **fields))

    def event(self, mark: str, **fields: Any) -> None:
        self.events[mark] |= fields

    def lose(self, mark: str) -> None:
        """Its event is in no file."""
        del self.events[mark]
        self.recorded["requests"] = None

    @property
    def found(self) -> list[str]:
        recorded = Recorded([*self.events.values()], **self.recorded)
        received = [*self.receipts.values(), *self.more]
        return violations([*self.operations.values()], received, recorded, self.losses)


def test_histories_that_agree_have_no_violation() -> None:
    assert History().found == []


Change = Callable[[History], object]


@pytest.mark.parametrize(
    ("change", "rule", "says"),
    [
        (lambda h: h.broker(MARK, listeners=("partner",)), 1, "tagged"),
        (lambda h: h.broker(MARK, listeners=()), 1, "tagged"),
        (lambda h: h.broker(MARK, listeners=("external", "external")), 1, "tagged"),
        (lambda h: h.broker(BINARY, listeners=("internal",)), 1, "tagged"),
        (lambda h: h.broker(PUT, listeners=("external",)), 1, "tagged"),
        (lambda h: h.more.append(Receipt(MISS, 0, "http", "lookup", "GET", (), checksum(b""))), 1, "has left"),
        (lambda h: h.client(MISS, reason="", status=200), 1, "was answered"),
        (lambda h: h.event(MARK, listener="partner"), 1, "recorded with listener"),
        (lambda h: h.client(MARK, addresses=(f"http://{inside(0)}:8080",)), 2, "off its listener"),
        (lambda h: h.client(MARK, addresses=("https://broker-1.pulsar.example.org",)), 2, "off its listener"),
        (lambda h: h.client(MARK, addresses=(ADDRESS, "http://10.1.0.3:8080")), 2, "off its listener"),
        (lambda h: h.client(MARK, addresses=()), 2, "without an address"),
        (lambda h: h.client(PUT, names_inside=True), 2, "of the inside"),
        (lambda h: h.client(MISS, names_inside=True), 2, "of the inside"),
        (lambda h: h.client(BINARY, addresses=(f"pulsar://{inside(0)}:6650",)), 2, "off its listener"),
        (lambda h: h.client(MARK, answer_mark="h9x"), 3, "another request"),
        (lambda h: h.client(PUT, answer_sum=BODY), 3, "was changed"),
        (lambda h: h.client(PUT, fault="no length"), 3, "without sense"),
        (lambda h: h.broker(PUT, received=ANSWER), 3, "body was changed"),
        (lambda h: h.broker(PUT, method="POST"), 3, "as another request"),
        (lambda h: h.broker(PUT, broker=2), 3, "another broker"),
        (lambda h: h.broker(PUT, answered=None), 3, "answer was changed"),
        (lambda h: h.broker(PUT, authorization="Bearer h9x"), 3, "token of another"),
        (lambda h: h.receipts.pop(MARK), 3, "no broker received it"),
        (lambda h: h.client(MARK, outcome="unconnected"), 3, "never sent"),
        (lambda h: h.again(MARK, mark="h9x"), 3, "nobody sent"),
        (lambda h: h.client(MARK, outcome="silent"), 4, "never answered"),
        (lambda h: h.client(MARK, outcome="begun"), 4, "has not ended"),
        (lambda h: h.lose(MARK), 4, "not recorded"),
        (lambda h: h.lose(BINARY), 4, "not recorded"),
        (lambda h: h.event(MARK, status=502), 4, "recorded with status 502"),
        (lambda h: h.event(MARK, userAgent=PUT), 4, "recorded"),
        (lambda h: h.event(MARK, id="i-2"), 4, "the id of another"),
        (lambda h: h.event(MARK, userAgent="h9x"), 4, "nobody sent it"),
        (lambda h: h.recorded.update(requests={**REQUESTS, "lookup": 4}), 4, "4 were counted and 3 recorded"),
        (lambda h: h.recorded.update(dropped=1), 4, "1 dropped"),
        (lambda h: h.recorded.update(in_flight=1), 4, "in_flight is 1"),
        (lambda h: h.recorded.update(connections=1), 4, "connections is 1"),
        (lambda h: h.recorded.update(buffered=1), 4, "buffered is 1"),
    ],
)  # fmt: skip
def test_each_violation_is_found_under_its_rule(change: Change, rule: int, says: str) -> None:
    history = History()
    change(history)
    found = [line for line in history.found if says in line]
    assert found, history.found
    assert all(line.startswith(f"{rule}: ") for line in found), found


def test_a_post_that_arrives_twice_is_found_and_a_put_that_does_is_not() -> None:
    history = History()
    history.again(PUT)
    assert history.found == []
    history.client(PUT, method="POST")
    history.broker(PUT, method="POST")
    history.again(PUT)
    assert [line for line in history.found if "a POST was sent again" in line]


def test_a_request_that_was_cut_off_may_lack_an_event_only_if_no_broker_received_it() -> None:
    history = History()
    history.client(PUT, outcome="cut")
    history.lose(PUT)
    assert [line for line in history.found if "not recorded" in line]
    del history.receipts[PUT]
    assert history.found == []


@pytest.mark.parametrize(("begin", "end", "count"), [(0.9, 2.0, 0), (1.05, 1.06, 0), (1.2, 2.0, 1), (0.1, 0.9, 1)])
def test_only_events_about_the_time_of_a_kill_may_be_missing(begin: float, end: float, count: int) -> None:
    history = History()
    history.lose(MARK)
    history.losses.append(Loss(begin, end))
    assert len(history.found) == count


def test_no_more_events_may_be_missing_than_the_sidecar_says_it_dropped() -> None:
    history = History()
    del history.events[MARK]
    history.recorded = {"requests": {"lookup": 3, "admin": 1}, "dropped": 1}
    assert history.found == []
    del history.events[MISS]
    assert any("not recorded" in line for line in history.found)


def test_what_clients_saw_is_counted_by_kind_and_a_wrong_answer_is_never_usual() -> None:
    history = History()
    history.client(PUT, status=502, reason="broker-unreachable")
    history.client(BINARY, outcome="cut")
    received = [*history.receipts.values()]
    kinds = seen([*history.operations.values()], received)
    assert kinds == {"usual": 2, "502 broker-unreachable": 1, "cut": 1}
    history.client(MARK, answer_mark=PUT)
    assert seen([*history.operations.values()], received)["wrong"] == 1


def test_addresses_of_listeners_differ_and_brokers_answer_by_the_mark_alone() -> None:
    assert not outside("external", 0) & outside("partner", 0)
    assert {owner(f"h{number}x") for number in range(20)} == {0, 1, 2}
    assert {redirects(f"h{number}x", 0) for number in range(20)} == {True, False}
