"""Plays every order in which the steps of a small case can come."""

from collections.abc import Callable, Sequence
from itertools import count
from typing import TypeVar

Case = TypeVar("Case")
Step = Callable[[], None]


def play_all(begin: Callable[[], Case], steps: Callable[[Case], Sequence[Step]], end: Callable[[Case], None]) -> int:
    """Begin the case for each order, and take one of its steps until it has none; gives the number of orders."""
    chosen: list[int] = []
    for number in count(1):
        case = begin()
        path: list[tuple[int, int]] = []
        while choices := steps(case):
            place = chosen[len(path)] if len(path) < len(chosen) else 0
            path.append((place, len(choices)))
            choices[place]()
        end(case)
        while path and path[-1][0] + 1 == path[-1][1]:
            path.pop()
        if not path:
            return number
        chosen = [place for place, _ in path]
        chosen[-1] += 1
    raise AssertionError
