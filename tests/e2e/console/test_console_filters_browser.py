"""Filters of decisions, and the config, in a real browser: what was asked for is in the page's URL, and stays so."""

from __future__ import annotations

import asyncio
import os
import signal
from contextlib import AsyncExitStack

import pytest
from aiohttp import ClientSession
from browsers import DESK, PHONE, opened
from console_stack import HOST, ConsoleStack
from playwright.async_api import Browser, Locator, Page, Request, Route, expect
from test_console_browser import faults, go, overflow

from pulsar_ingress_proxy.console.stream import CLIENTS

ROWS = "#decisions tbody tr:not(.more)"


def asked(page: Page) -> list[str]:
    """The searches that the page sends from now on."""
    found: list[str] = []

    def note(request: Request) -> None:
        if "/api/decisions?" in request.url and "limit=200" in request.url:
            found.append(request.url)

    page.on("request", note)
    return found


async def test_search_and_filters_are_in_the_url_and_the_stream_obeys_them(
    console: ConsoleStack, browser: Browser
) -> None:
    async with console.running(), opened(browser, f"{console.url}#/decisions", DESK) as (page, said):
        tally, find = page.locator("#tally"), page.locator("#decisions").get_by_label("Find")
        await console.hit("orders")
        await console.everything()
        await console.miss("elsewhere")
        await expect(page.locator(ROWS)).to_have_count(6)
        await find.fill("ORDERS")
        await expect(page.locator(ROWS)).to_have_count(3)
        await expect(tally).to_have_text("3 of 6 decisions match.")
        assert page.url.endswith("#/decisions?find=ORDERS")

        await page.get_by_role("combobox", name="Ingress").select_option("public")
        await expect(page.locator(ROWS)).to_have_count(2)
        assert page.url.endswith("#/decisions?find=ORDERS&ingress=public")
        await console.hit("other")
        await console.hit("orders-too")
        await expect(page.locator(ROWS)).to_have_count(3)
        await expect(page.locator(ROWS).first).to_contain_text("orders-too")
        await expect(tally).to_have_text("3 of 8 decisions match.")

        await page.reload()
        await expect(page.locator(ROWS)).to_have_count(3)
        await expect(find).to_have_value("ORDERS")
        await expect(page.get_by_role("combobox", name="Ingress")).to_have_value("public")
        await page.go_back()
        await expect(page.locator(ROWS)).to_have_count(4)
        await expect(page.get_by_role("combobox", name="Ingress")).to_have_value("")
        await page.go_back()
        await expect(page.locator(ROWS)).to_have_count(8)
        await expect(find).to_have_value("")
        await page.go_forward()
        await expect(page.locator(ROWS)).to_have_count(4)
        await page.get_by_role("button", name="Clear").click()
        await expect(page.locator(ROWS)).to_have_count(8)
        await expect(find).to_be_focused()
        assert page.url.endswith("#/decisions")
        assert said == []


async def test_filters_hold_when_the_sidecar_comes_back(console: ConsoleStack, browser: Browser) -> None:
    link = f"{console.url}#/decisions?only=miss&find=orders"
    async with console.running() as process, opened(browser, link, DESK) as (page, _):
        await expect(page.locator("#decisions")).to_contain_text("No decision matches")
        await process.end(signal.SIGKILL)
        await expect(page.locator("#pills")).to_contain_text("away")
        async with console.running():
            await expect(page.locator("#pills")).to_contain_text("live")
            for topic in ("orders", "payments"):
                await console.hit(topic)
                await console.miss(topic)
            await expect(page.locator(ROWS)).to_have_count(1)
            await expect(page.locator(ROWS)).to_contain_text("public/default/orders")


async def test_typing_asks_once_and_an_older_answer_never_replaces_a_newer_one(
    console: ConsoleStack, browser: Browser
) -> None:
    async with console.running(), opened(browser, f"{console.url}#/decisions", DESK) as (page, _):
        find = page.locator("#decisions").get_by_label("Find")
        for topic in ("first", "second"):
            await console.hit(topic)
        await expect(page.locator(ROWS)).to_have_count(2)
        held, came = asyncio.Event(), asyncio.Event()

        async def hold(route: Route) -> None:
            answer = await route.fetch()
            came.set()
            await held.wait()
            await route.fulfill(response=answer)

        await page.route("**/api/decisions?find=first*", hold)
        searches = asked(page)
        await page.clock.install()
        await page.clock.pause_at(await page.evaluate("Date.now() + 1000"))
        await find.press_sequentially("first")
        assert searches == []
        await page.clock.run_for(250)
        await came.wait()
        await find.fill("second")
        await page.clock.run_for(250)
        await expect(page.locator(ROWS)).to_have_count(1)
        await expect(page.locator(ROWS)).to_contain_text("second")
        async with page.expect_response("**/api/decisions?find=first*"):
            held.set()
        await page.evaluate("() => undefined")  # once what waited for the answer has run
        await expect(page.locator(ROWS)).to_contain_text("second")
        assert len(searches) == 2


async def test_each_tile_leads_to_the_decisions_that_it_counts(console: ConsoleStack, browser: Browser) -> None:
    async with console.running(), opened(browser, console.url, DESK) as (page, said):
        await console.everything()
        await console.redirect()
        await console.failure()
        await expect(page.locator("#tiles")).to_contain_text("Failures1")
        counts = {"Hit ratio": 6, "Misses": 1, "Redirects": 2, "Leaks": 1, "Lookup, p50": 6, "Failures": 1}
        for tile, count in counts.items():
            if tile != "Lookup, p50":
                await expect(page.locator("#tiles > div", has_text=tile)).to_contain_text(str(count))
            await page.locator("#tiles").get_by_role("link", name=tile).click()
            await expect(page.get_by_role("heading", level=2)).to_have_text("Decisions")
            await expect(page.locator(ROWS)).to_have_count(count)
            await page.go_back()
            await expect(page.get_by_role("heading", level=2)).to_have_text("Overview")
        await go(page, "Ingresses")
        await page.get_by_role("row").filter(has_text=f"*.{HOST}").get_by_role("link").click()
        await expect(page.locator(ROWS)).to_have_count(5)
        await expect(page.get_by_role("combobox", name="Ingress")).to_have_value("public")
        await expect(page.get_by_role("button", name="Hits")).to_have_attribute("aria-pressed", "true")
        assert said == []


async def test_page_says_which_decisions_it_no_longer_has(console: ConsoleStack, browser: Browser) -> None:
    async with console.running(), opened(browser, console.url, DESK) as (page, _):
        for _ in range(505):
            await console.miss()
        await expect(page.locator("#tiles")).to_contain_text("Misses505")
        await page.locator("#tiles").get_by_role("link", name="Misses").click()
        await expect(page.locator("#tally")).to_have_text(
            "500 misses. 5 older ones are no longer kept. The newest 200 are shown."
        )
        await expect(page.locator(ROWS)).to_have_count(200)


@pytest.mark.parametrize("size", [DESK, PHONE], ids=["desk", "phone"])
async def test_filters_that_find_nothing_or_cannot_be_read_say_so_and_can_be_cleared(
    console: ConsoleStack, browser: Browser, size: tuple[int, int]
) -> None:
    async with console.running(), opened(browser, f"{console.url}#/decisions?find=nothing", size, "dark") as (page, _):
        await console.hit()
        await expect(page.locator("#decisions")).to_contain_text("No decision matches")
        assert await faults(page) == []
        await page.get_by_role("button", name="Clear the filters").click()
        await expect(page.locator(ROWS)).to_have_count(1)

        await page.goto(f"{console.url}#/decisions?kind=topic")
        await expect(page.locator("#decisions")).to_contain_text("kind: Input should be 'lookup', 'admin' or 'other'")
        await expect(page.locator("#pills")).to_contain_text("live")
        await expect(page.locator("#banner")).to_be_empty()
        assert await faults(page) == []
        assert await overflow(page) <= 0
        await page.get_by_role("button", name="Clear", exact=True).click()
        await expect(page.locator(ROWS)).to_have_count(1)
        assert await page.get_by_role("combobox", name="Kind").locator("option").all_inner_texts() == [
            "any", "lookup", "admin", "other",
        ]  # fmt: skip

        for query in ("topic=orders", "limit=5", "since=x"):
            await page.goto(f"{console.url}#/decisions?{query}")
            await expect(page.locator("#decisions")).to_contain_text(f"{query.partition('=')[0]}: is unknown")
            await expect(page.locator("#pills")).to_contain_text("live")
            await page.get_by_role("button", name="Clear", exact=True).click()
            await expect(page.locator(ROWS)).to_have_count(1)
            assert page.url.endswith("#/decisions")


async def test_list_that_is_paused_stays_when_the_sidecar_stops_answering_for_a_while(
    console: ConsoleStack, browser: Browser
) -> None:
    async with console.running() as process, opened(browser, f"{console.url}#/decisions", DESK) as (page, _):
        await console.hit("orders")
        await expect(page.locator(ROWS)).to_have_count(1)
        await page.get_by_role("button", name="Pause").click()
        await page.locator(ROWS).get_by_role("button").click()
        await console.hit("payments")
        await expect(page.locator("#left-out")).to_have_text("1 waiting")
        os.kill(process.pid, signal.SIGSTOP)
        await expect(page.locator("#pills")).to_contain_text("away")
        os.kill(process.pid, signal.SIGCONT)
        await expect(page.locator("#pills")).to_contain_text("live")
        await console.hit("refunds")
        await expect(page.locator("#left-out")).to_have_text("2 waiting")
        await expect(page.locator("#decisions tr.more")).to_be_visible()
        await page.get_by_role("button", name="Go on").click()
        await expect(page.locator(ROWS)).to_have_count(3)


async def test_page_that_nobody_sees_takes_no_stream_and_catches_up_when_it_is_seen(
    console: ConsoleStack, browser: Browser
) -> None:
    def seen(is_seen: bool) -> str:
        value = "false" if is_seen else "true"
        hide = f"Object.defineProperty(document, 'hidden', {{value: {value}, configurable: true}})"
        return f"{hide}; document.dispatchEvent(new Event('visibilitychange'))"

    link = f"{console.url}#/decisions"
    async with console.running(), ClientSession() as session, opened(browser, link, DESK) as (page, _):
        await console.hit("orders")
        await expect(page.locator(ROWS)).to_have_count(1)
        await page.evaluate(seen(False))
        async with AsyncExitStack() as streams, asyncio.timeout(20):
            held = 0
            while held < CLIENTS:
                answer = await streams.enter_async_context(session.get(f"{console.url}api/decisions/stream"))
                held += answer.status == 200
        await console.hit("payments")
        await page.evaluate(seen(True))
        await expect(page.locator(ROWS)).to_have_count(2)
        await console.hit("refunds")
        await expect(page.locator(ROWS)).to_have_count(3)

        await page.locator(ROWS).last.get_by_role("button").click()
        await page.evaluate(seen(False))
        await console.hit("returns")
        await page.evaluate(seen(True))
        await expect(page.locator(ROWS)).to_have_count(4)
        await expect(page.locator("#decisions tr.more:visible")).to_contain_text("public/default/orders")


async def test_link_means_to_the_page_what_it_means_to_the_api(console: ConsoleStack, browser: Browser) -> None:
    async with console.running(), opened(browser, f"{console.url}#/constructor", DESK) as (page, said):
        await expect(page.get_by_role("heading", level=2)).to_have_text("Overview")
        await console.hit("orders")
        await console.miss("payments")
        await page.goto(f"{console.url}#/decisions?only=hit&only=miss&find=%20orders&foo=")
        await expect(page.locator("#tally")).to_have_text("1 of 2 decisions of these sorts match.")
        assert said == []
        await page.goto(f"{console.url}#/decisions?status=404&status=500")
        await expect(page.locator("#decisions")).to_contain_text("status: should be like 404")


async def test_link_that_cannot_be_read_does_not_stay_for_the_next_one(console: ConsoleStack, browser: Browser) -> None:
    async with console.running(), opened(browser, f"{console.url}#/decisions?status=abc", DESK) as (page, _):
        await console.hit()
        await expect(page.locator("#decisions")).to_contain_text("status: should be like 404")
        await page.goto(f"{console.url}#/decisions?only=hit")
        await expect(page.locator(ROWS)).to_have_count(1)
        await page.goto(f"{console.url}#/decisions?status=abc")
        await expect(page.locator("#decisions")).to_contain_text("status: should be like 404")
        await page.goto(f"{console.url}#/decisions")
        await expect(page.locator(ROWS)).to_have_count(1)


async def test_config_view_shows_each_key_with_its_source_and_follows_reloads(
    console: ConsoleStack, browser: Browser
) -> None:
    variable = "PULSAR_INGRESS_REDIRECTS__MAX_HOPS"
    async with (
        console.running({variable: "3"}, miss="reject"),
        opened(browser, f"{console.url}#/config", DESK) as (page, said),
    ):

        def row(key: str) -> Locator:
            return page.get_by_role("row").filter(has=page.get_by_role("rowheader", name=key, exact=True))

        find = page.locator("#config").get_by_label("Find")
        await expect(row("miss")).to_contain_text("reject")
        await expect(row("miss")).to_contain_text("config.yaml:")
        await expect(row("redirects.maxHops")).to_contain_text(variable)
        await expect(row("leaks")).to_contain_text("default")
        await find.fill("HOSTS.1")
        await expect(page.locator("#config tbody tr")).to_have_count(1)
        await expect(row("ingresses.0.hosts.1")).to_contain_text(f"*.{HOST}")
        await find.fill("")
        await page.get_by_label("Only what is set").check()
        await expect(row("leaks")).to_have_count(0)

        console.write(leaks="block")
        await expect(row("leaks")).to_contain_text("block")
        await expect(row("miss")).to_have_count(0)
        console.write(leaks="blok", shadow=True)
        await expect(page.locator("#config-problem")).to_contain_text("leaks: 'blok' is not one of")
        await expect(row("leaks")).to_contain_text("block")
        await expect(row("shadow")).to_have_count(0)
        console.write(leaks="block", clusterName="renamed")
        await expect(row("clusterName")).to_contain_text("takes effect with the next start")
        await expect(row("clusterName")).not_to_contain_text("renamed")
        await find.fill("no such key")
        await expect(page.locator("#config-content")).to_contain_text("has “no such key” in")
        await find.fill("nor such")
        await expect(page.locator("#config-content")).to_contain_text("has “nor such” in")
        assert await faults(page) == []
        await page.locator("#config").get_by_role("link", name="Address book").click()
        await expect(page.get_by_role("heading", level=2)).to_have_text("Address book")
        assert said == []
