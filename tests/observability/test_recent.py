"""The rings of recent decisions: what is rare stays, what is read is in order."""

from typing import Any

import pytest
from recorded import line, lookup

from pulsar_ingress_proxy.memory import RECENT
from pulsar_ingress_proxy.observability.recent import Recent, Sort, sorts_of
from pulsar_ingress_proxy.routing.paths import Target
from pulsar_ingress_proxy.routing.selection import Selection

MISS: dict[str, Any] = {"miss_reason": "no-rule", "selection": Selection(None, None, "none")}


def numbers(recent: Recent, after: int = 0, *only: Sort) -> list[int]:
    return [kept.number for kept in recent.after(after, only)]


@pytest.mark.parametrize(
    ("changes", "found"),
    [
        ({}, ("hit",)),
        ({"target": Target("admin", "admin")}, ()),
        ({"selection": None}, ()),
        (MISS, ("miss",)),
        ({**MISS, "selection": None}, ()),
        ({**MISS, "target": Target("admin", "admin")}, ()),
        ({"leak": "body"}, ("leak", "hit")),
        ({"status": 499}, ("hit",)),
        ({"status": 502}, ("failure", "hit")),
        ({"status": 599}, ("failure", "hit")),
        ({"status": 600}, ("hit",)),
        ({"status": 500, "target": Target("admin", "admin")}, ("failure",)),
        ({"redirects": ["rewritten", "followed"]}, ("redirect", "hit")),
        ({**MISS, "leak": "location", "redirects": ["passed"]}, ("leak", "miss", "redirect")),
        ({**MISS, "status": 503}, ("failure", "miss")),
    ],
)
def test_decisions_are_classified_as_leak_failure_miss_redirect_and_hit(
    changes: dict[str, Any], found: tuple[str, ...]
) -> None:
    assert sorts_of(lookup(**changes)) == found


def test_newest_decisions_come_first_whatever_their_sort() -> None:
    recent = Recent()
    for sorts in ((), ("miss",), (), ("leak", "redirect"), ("redirect",)):
        recent.add(line(lookup()), sorts)
    assert numbers(recent) == [5, 4, 3, 2, 1]
    assert numbers(recent, 3) == [5, 4]
    assert numbers(recent, 0, "redirect") == [5, 4]
    assert numbers(recent, 0, "miss", "leak") == [4, 2]
    assert numbers(recent, 5) == []


def test_rare_decisions_outlive_ordinary_ones() -> None:
    recent = Recent(room=3)
    recent.add(line(lookup()), ("miss",))
    for _ in range(100):
        recent.add(line(lookup()), ())
    assert numbers(recent) == [101, 100, 99, 1]


def test_decisions_are_counted_by_sort_whether_they_are_kept_or_not() -> None:
    recent = Recent(room=3)
    made: dict[tuple[Sort, ...], int] = {("hit",): 9, ("miss",): 5, ("failure", "miss"): 1, (): 1}
    for sorts, number in made.items():
        for _ in range(number):
            recent.add(line(lookup()), sorts)
    assert (recent.made(), recent.kept()) == (16, 7)  # three hits and others, three misses, one failure
    assert (recent.made(["miss"]), recent.kept(["miss"])) == (6, 4)
    assert (recent.made(["miss", "failure"]), recent.kept(["miss", "failure"])) == (6, 4)
    assert (recent.made(["leak"]), recent.kept(["leak"])) == (0, 0)


def test_large_decisions_stay_within_the_memory_limit() -> None:
    recent = Recent()
    for number in range(500):
        topic = f"persistent://t/n/{number}" + "x" * 29_000
        recent.add(line(lookup(target=Target("lookup", "lookup", "t", "n", topic))), ("miss",))
    kept = recent.after(0)
    assert kept[0].number == 500
    assert 0 < sum(len(each.line) for each in kept) <= RECENT


def test_cursor_of_another_run_counts_from_the_beginning() -> None:
    one, other = Recent(), Recent()
    one.add(line(lookup()), ())
    other.add(line(lookup()), ())
    assert one.number(one.cursor(1)) == 1
    assert one.number(other.cursor(1)) == 0
