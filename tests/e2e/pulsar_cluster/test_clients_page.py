"""docs/clients.md says of every client and way what holds, and no more and no less fails than is known to."""

from client_matrix import FAILS, KINDS, PAGE, has


def test_clients_page_covers_every_client_way_and_conversation() -> None:
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in PAGE.read_text().splitlines()]
    told = [row for row in rows if len(row) == 5 and row[1].startswith("`")]
    assert {(kind, way) for kind, way, *_ in told} == {(kind.name, way.name) for kind in KINDS for way in kind.ways}
    for kind in KINDS:
        for way in kind.ways:
            known = [name for name in has(kind, way) if (kind.name, way.name, name) in FAILS]
            for *_, held, failed in (row for row in told if row[:2] == [kind.name, way.name]):
                assert failed == ", ".join(known)
                assert held == ", ".join(name for name in has(kind, way) if name not in known)
