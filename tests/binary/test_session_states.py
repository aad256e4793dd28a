"""A session of the binary protocol in every order of what its client, its broker and other brokers do."""

from collections.abc import Callable, Sequence
from functools import partial
from itertools import product

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from memory_session import MODES
from memory_sessions import Sessions, answer, say_elsewhere
from schedules import Step, play_all
from session_model import PARTITIONS_RESPONSE, Asked, SessionModel
from words import command, connected, message

pytestmark = pytest.mark.timeout(300)  # thousands of orders, on a machine that may be busy

BROKERS = range(3)
ANY = st.integers(0, 99)
IDS = st.integers(1, 3)
OWNER = st.sampled_from(BROKERS)
SOON = st.sampled_from([True, True, False])
CUTS: st.SearchStrategy[list[int]] = st.one_of(st.just([]), st.lists(st.integers(0, 200), max_size=2))
WHAT = st.sampled_from(["lookup", "lookup", "lookup", "not allowed", "partitions", "passing", "producer"])
HOW = st.sampled_from(["found", "failed", "redirect", "redirect"])
ELSEWHERE = st.sampled_from(["found", "failed", "redirect", "redirect", "error", "challenge", "leave"])
INTERRUPTION = st.sampled_from(
    [
        "client does not read", "client does not read", "broker does not read", "client leaves", "broker leaves",
        "drain", "time passes",
    ]
)  # fmt: skip


class SessionMachine(RuleBasedStateMachine):
    """Every peer sends what is its own to send, in pieces; what is heard is compared with the model."""

    @initialize(mode=st.sampled_from([*MODES]))
    def begin(self, mode: str) -> None:
        self.sessions = Sessions(mode)
        self.come(True)
        for owner in BROKERS:  # from which the sidecar may learn what to do with others
            self.ask(0, 1, "lookup", True)
            self.broker_answers(0, 0, "found", owner, True)

    def some(self, which: int, can: Callable[[SessionModel], object]) -> list[SessionModel]:
        """One of the sessions that can do it, if there are any."""
        able = [session for session in self.sessions.all if can(session)]
        return able[which % max(len(able), 1) :][:1]

    @precondition(lambda self: len(self.sessions.here) < 2)
    @rule(is_let_in=SOON)
    def come(self, is_let_in: bool) -> None:
        session = self.sessions.arrive()
        if is_let_in:
            self.sessions.let_in(session)

    @precondition(lambda self: self.sessions.here)
    @rule(which=ANY, request=IDS, what=WHAT, is_sent=SOON)
    def ask(self, which: int, request: int, what: str, is_sent: bool) -> None:
        for session in self.some(which, lambda one: one.client.is_connected):
            session.client.unsent += self.sessions.frame(what, request)
            if is_sent and session.client.can_send:
                self.sessions.run(session, session.client_sends)

    @precondition(lambda self: any(session.client.can_send for session in self.sessions.all))
    @rule(which=ANY, cuts=CUTS)
    def client_sends(self, which: int, cuts: list[int]) -> None:
        for session in self.some(which, lambda one: one.client.can_send):
            self.sessions.run(session, session.client_sends, *cuts)

    @precondition(lambda self: any(session.has_asked for session in self.sessions.all))
    @rule(which=ANY, lookup=ANY, how=HOW, owner=OWNER, is_sent=SOON)
    def broker_answers(self, which: int, lookup: int, how: str, owner: int, is_sent: bool) -> None:
        for session in self.some(which, lambda one: one.has_asked):
            assert session.broker is not None
            number, request = session.broker.waiting[lookup % len(session.broker.waiting)]
            session.broker.answer(number, answer(how, request, owner))
            if is_sent and session.broker.can_send:
                self.sessions.run(session, session.broker_sends)

    @precondition(lambda self: any(session.hears_broker for session in self.sessions.all))
    @rule(which=ANY, cuts=CUTS)
    def broker_sends(self, which: int, cuts: list[int]) -> None:
        """What waits, or else a frame that answers no lookup."""
        for session in self.some(which, lambda one: one.hears_broker):
            broker = session.broker
            assert broker is not None
            if not broker.unsent:
                partitions = command(PARTITIONS_RESPONSE, message(f1=3, f2=9))
                more = partitions if session.owes_partitions else self.sessions.frame("passing")
                broker.unsent = more if session.is_joined else connected()
            self.sessions.run(session, session.broker_sends, *cuts)

    @precondition(lambda self: any(session.is_elsewhere for session in self.sessions.all))
    @rule(which=ANY, how=ELSEWHERE, owner=OWNER, is_sent=SOON, cuts=CUTS)
    def broker_elsewhere(self, which: int, how: str, owner: int, is_sent: bool, cuts: list[int]) -> None:
        able = [(session, asked) for session in self.sessions.all for asked in session.is_elsewhere]
        session, asked = able[which % len(able)]
        if is_sent and say_elsewhere(asked, how, owner):
            self.sessions.run(session, session.elsewhere_sends, asked)
        if how == "leave" and asked in session.is_elsewhere:
            self.sessions.run(session, session.elsewhere_leaves, asked)
        elif asked in session.is_elsewhere and say_elsewhere(asked, how, owner):
            self.sessions.run(session, session.elsewhere_sends, asked, *cuts)

    @rule(which=ANY, how=INTERRUPTION)
    def interrupt(self, which: int, how: str) -> None:
        if how == "time passes":
            self.sessions.skip()
        for session in self.some(which, lambda one: one.client.is_connected and one.is_joined):
            assert session.broker is not None
            match how:
                case "client does not read":
                    session.client.transport.is_stalled = True
                case "broker does not read":
                    session.broker.transport.is_stalled = True
                case "client leaves" | "broker leaves" | "drain":
                    self.sessions.run(session, getattr(session, how.replace(" ", "_")))

    @precondition(lambda self: any(session.is_stalled for session in self.sessions.all))
    @rule(which=ANY)
    def read_again(self, which: int) -> None:
        for session in self.some(which, lambda one: one.is_stalled):
            self.sessions.run(session, session.read_again)

    @invariant()
    def peers_hear_what_the_model_expects(self) -> None:
        self.sessions.check()

    def teardown(self) -> None:
        self.sessions.end()


TestSession = SessionMachine.TestCase
TestSession.settings = settings(max_examples=150, stateful_step_count=30)


HOWS = {"rewrite": ("failed", "redirect"), "follow": ("redirect", "found"), "through": ("found", "redirect")}
"""What each of the lookups is answered with, by what becomes of a redirect."""
MIDDLE = 20
"""Where frames are cut: behind their sizes and their type."""
ASKED = [((1, 2), 0), ((1, 1), 0), ((1,), MIDDLE)]
EVENTS = ["", "client leaves", "broker leaves", "drain", "time passes"]


class Case:
    """One or two lookups and another request, each side's frames whole or in halves, and one event at any moment."""

    def __init__(self, sessions: Sessions, ids: Sequence[int], hows: Sequence[str], event: str, cut: int) -> None:
        self._sessions, self._ids, self._hows, self._event, self._cut = sessions, ids, hows, event, cut
        self.session = sessions.arrive()
        sessions.let_in(self.session)
        first, *more = (sessions.frame("lookup", request) for request in ids)
        self._to_say = [first, sessions.frame("partitions"), *more]

    def steps(self) -> list[Step]:
        session, broker, can = self.session, self.session.broker, list[Step]()
        assert broker is not None
        if session.client.is_connected and (self._to_say or session.client.unsent):
            can.append(self._client_says)
        if broker.is_connected and broker.unsent:
            can.append(partial(self._run, session.broker_sends))
        elif broker.is_connected:
            can += [partial(self._answer, number, request) for number, request in broker.waiting]
            can += [self._answer_request] * session.owes_partitions
        can += [partial(self._answer_elsewhere, asked) for asked in session.is_elsewhere]
        if self._event and session.client.is_connected:
            can.append(self._interrupt)
        return can

    def _run(self, do: Callable[..., None], *arguments: object) -> None:
        self._sessions.run(self.session, do, *arguments)
        self._sessions.check()

    def _client_says(self) -> None:
        client = self.session.client
        if client.unsent:
            self._run(self.session.client_sends)
        else:
            client.unsent = self._to_say.pop(0)
            self._run(self.session.client_sends, self._cut)

    def _answer(self, number: int, request: int) -> None:
        assert self.session.broker is not None
        self.session.broker.answer(number, answer(self._hows[number], request, number))
        self._run(self.session.broker_sends, self._cut)

    def _answer_request(self) -> None:
        assert self.session.broker is not None
        self.session.broker.unsent = command(PARTITIONS_RESPONSE, message(f1=3, f2=9))
        self._run(self.session.broker_sends, self._cut)

    def _answer_elsewhere(self, asked: Asked) -> None:
        """The broker accepts the client and answers; where there is one lookup, the first redirects once more."""
        is_last = 2 in asked.hops or len(self._ids) > 1
        for _ in ("connected", "answer"):
            say_elsewhere(asked, "found" if is_last else "redirect", 2)
            self._run(self.session.elsewhere_sends, asked)

    def _interrupt(self) -> None:
        event, self._event = self._event, ""
        if event == "time passes":
            self._sessions.skip()
            self._sessions.check()
        else:
            self._run(getattr(self.session, event.replace(" ", "_")))


@pytest.mark.parametrize("mode", MODES)
def test_every_order_of_two_lookups_a_request_and_an_event_is_as_the_model_expects(mode: str) -> None:
    """Lookups with two ids, with one id, and one lookup whose frames come in halves: 4,773 orders in all modes."""
    sessions, orders = Sessions(mode), 0
    for (ids, cut), event in product(ASKED, EVENTS):
        begin = partial(Case, sessions, ids, HOWS[mode], event, cut)
        orders += play_all(begin, Case.steps, lambda case: sessions.leave())
    sessions.end()
    assert orders > 700
