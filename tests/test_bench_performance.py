"""The page of performance figures: percentiles are exact, tables replace their blocks only, plots are well-formed."""

import asyncio
from itertools import repeat
from pathlib import Path
from xml.etree import ElementTree

import pytest
from aiohttp import web

from bench import open_loop
from bench.figures import Sample
from bench.performance import DOCS
from bench.performance_figures import (
    Memory,
    Reload,
    config_plot,
    config_table,
    costs,
    curve,
    memory_table,
    ratios,
    reload_table,
    replace_block,
)
from bench.places import Place
from bench.processes import CannotMeasure
from bench.sidecar import sidecar_config
from pulsar_ingress_proxy.config import load_mapping

NGINX, ENVOY, OURS = "nginx", "Envoy with Lua", "pulsar-ingress-proxy"
CURVE = {
    "1": {NGINX: [Sample(20, 1)], ENVOY: [Sample(60, 1)], OURS: [Sample(100, 1)]},
    "4,000": {NGINX: [Sample(10, 1), Sample(30, 1)], OURS: [Sample(50, 1), Sample(90, 1)]},
}


@pytest.mark.parametrize(
    ("values", "percent", "expected"),
    [
        (range(1, 101), 50, 50),
        (range(1, 101), 99, 99),
        (range(1, 101), 99.9, 100),
        ([3, 1, 2], 50, 2),
        ([7], 99.9, 7),
        (range(1, 1001), 99.9, 999),
    ],
)
def test_percentile_is_the_nearest_rank(values: list[float], percent: float, expected: float) -> None:
    assert open_loop.percentile(values, percent) == expected


def test_latency_table_has_a_line_for_each_rate_and_proxy() -> None:
    lines = open_loop.table({200: {"no proxy": [[0.001, 0.002], [0.003]]}, 1000: {NGINX: [[0.0005]]}}).splitlines()
    assert lines[2:] == [
        "| 200/s | no proxy | 2.00 (1.00–3.00) | 2.50 (2.00–3.00) | 2.50 (2.00–3.00) | 2.50 (2.00–3.00) |",
        "| 1,000/s | nginx | 0.50 (0.50–0.50) | 0.50 (0.50–0.50) | 0.50 (0.50–0.50) | 0.50 (0.50–0.50) |",
    ]


def test_direct_lookup_carries_the_listener() -> None:
    assert open_loop.tagged(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n") == (
        b"GET / HTTP/1.1\r\nX-Pulsar-ListenerName: external\r\nhost: a\r\n\r\n"
    )


async def answering(status: int) -> tuple[web.ServerRunner, int]:
    """A server that answers every request only when the second one has come."""
    asked = 0
    both = asyncio.Event()

    async def answer(_: web.BaseRequest) -> web.Response:
        nonlocal asked
        asked += 1
        if asked == 2:
            both.set()
        await both.wait()
        return web.Response(status=status)

    runner = web.ServerRunner(web.Server(answer))
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    return runner, runner.addresses[0][1]


async def test_open_loop_sends_the_next_request_before_the_last_is_answered() -> None:
    runner, port = await answering(200)
    latencies = await open_loop.send(port, repeat(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n"), 1000, 0.1, seed=1)
    assert len(latencies) > 2
    await runner.cleanup()


async def test_open_loop_fails_where_a_request_is_refused() -> None:
    runner, port = await answering(503)
    with pytest.raises(CannotMeasure, match="refused, the first with 503"):
        await open_loop.send(port, repeat(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n"), 1000, 0.1, seed=1)
    await runner.cleanup()


def test_block_is_replaced_and_the_text_around_it_kept() -> None:
    page = "a\n<!-- x -->\nold\n<!-- /x -->\nb\n<!-- y -->\n<!-- /y -->\n"
    assert replace_block(page, "x", r"new \1") == "a\n<!-- x -->\nnew \\1\n<!-- /x -->\nb\n<!-- y -->\n<!-- /y -->\n"
    assert replace_block(replace_block(page, "y", "1"), "y", "2").endswith("<!-- y -->\n2\n<!-- /y -->\n")
    with pytest.raises(ValueError, match="0 blocks named z"):
        replace_block(page, "z", "")


def test_page_has_a_block_for_every_table_and_shows_every_plot() -> None:
    page = (DOCS / "performance.md").read_text()
    for name in ("machine", "lookups", "clients", "connections", "config", "latency", "memory", "reload"):
        replace_block(page, name, "")
    for name in ("clients", "connections", "config"):
        assert f"](performance-{name}.svg)" in page


def test_ratios_have_their_spread_and_a_proxy_may_be_missing_from_a_line() -> None:
    assert ratios("connections", CURVE, NGINX).splitlines() == [
        "| connections | nginx, µs | Envoy with Lua | pulsar-ingress-proxy |",
        "| --- | --- | --- | --- |",
        "| 1 | 20.0 | 3.00 (3.00–3.00) | 5.00 (5.00–5.00) |",
        "| 4,000 | 20.0 |  | 4.00 (3.00–5.00) |",
    ]


def test_settings_of_the_sidecar_share_its_column() -> None:
    rounds = {NGINX: [Sample(10, 1)], f"{OURS}, following": [Sample(80, 1)]}
    assert ratios("load", {"followed": rounds}, NGINX).splitlines()[-1] == "| followed | 10.0 | 8.00 (8.00–8.00) |"


def test_plots_are_well_formed_and_name_their_lines() -> None:
    config = {"ingresses": {"1": [Sample(100, 1)], "10": [Sample(110, 1)]}, "brokers": {"1": [Sample(100, 1)]}}
    for svg, expected in (
        (curve("connections", CURVE, NGINX), {"4,000", "nginx 20.0", "Envoy 60.0", "sidecar 4.0"}),
        (config_plot(config), {"10", "sidecar 1.1", "sidecar 1.0"}),
    ):
        texts = {text.text for text in ElementTree.fromstring(svg).iter("{http://www.w3.org/2000/svg}text")}
        assert expected <= texts
    assert config_table(config).splitlines()[3] == "| ingresses | 10 | 110 | 1.10 (1.10–1.10) |"


def test_memory_and_reloads_are_shown_in_the_units_of_their_columns() -> None:
    memory = Memory(0.5, 60 << 20, 61 << 20, 62 << 20, 2048, 7168)
    assert memory_table({OURS: memory}).endswith(f"| {OURS} | 0.50 | 60.0 | 61.0 | 62.0 | 2.0 | 7.0 |")
    assert reload_table({"small": Reload([0.001], [0.4, 0.5, 0.42])}).endswith("| small | 1 (1–1) | 420 (400–500) |")


def test_sidecar_config_has_as_many_ingresses_and_brokers_as_asked_for() -> None:
    config = load_mapping(sidecar_config(Place(Path("/nowhere"), 1111, 2222), ingresses=20, brokers=30))
    assert len(config.ingresses) == 20
    assert len(config.advertised_listeners) == 30


def test_readme_table_is_that_of_the_performance_page() -> None:
    page, readme = (DOCS / "performance.md").read_text(), (DOCS.parent / "README.md").read_text()
    table = page.partition("<!-- lookups -->\n")[2].partition("\n<!-- /lookups -->")[0]
    assert replace_block(readme, "costs", costs(table)) == readme
