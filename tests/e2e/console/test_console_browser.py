"""The console as an operator meets it: in a real browser, before a real sidecar."""

from __future__ import annotations

import json
import re
import signal
from typing import Any

import pytest
from axe_playwright_python.async_playwright import Axe
from browsers import DESK, PHONE, Theme, opened
from console_stack import HOST, LOOKUP, ConsoleStack
from playwright.async_api import Browser, Page, expect

VIEWS = ("Overview", "Ingresses", "Address book", "Decisions", "What-if", "Config", "Changes")
expect.set_options(timeout=20_000)

PARTNER = {"name": "partner", "hosts": ["partner.example.net"], "listener": "external", "allowedListeners": ["nobodys"]}


async def go(page: Page, view: str) -> None:
    await page.get_by_role("link", name=view, exact=True).click()
    await expect(page.get_by_role("heading", level=2)).to_have_text(view)


async def faults(page: Page) -> list[str]:
    """What axe finds."""
    found = await Axe().run(page)
    return [f"{one['id']}: {one['nodes'][0]['html']}" for one in found.response["violations"]]


async def overflow(page: Page) -> int:
    """Pixels by which the page is wider than its window."""
    return int(await page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth"))


@pytest.mark.parametrize(("theme", "size"), [("light", DESK), ("dark", PHONE)], ids=["light desk", "dark phone"])
async def test_every_console_view_shows_its_data_without_overflow_or_accessibility_faults(
    console: ConsoleStack, browser: Browser, theme: Theme, size: tuple[int, int]
) -> None:
    async with console.running(), opened(browser, console.url, size, theme) as (page, said):
        await console.everything()
        console.write(ingresses=[*console.keys["ingresses"], PARTNER])
        await expect(page.locator("#pills")).to_contain_text("generation 2")
        background = await page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert background == ("rgb(255, 255, 255)" if theme == "light" else "rgb(18, 22, 27)")

        for view in VIEWS:
            await go(page, view)
            match view:
                case "Overview":
                    await expect(page.locator("#attention")).to_contain_text("has listener 'nobodys'")
                    await expect(page.locator("#tiles")).to_contain_text("Leaks1")
                    await expect(page.locator("#remarkable")).to_contain_text("leak: body")
                    await expect(page.get_by_role("img", name="Hit ratio: ")).to_be_visible()
                case "Ingresses":
                    row = page.get_by_role("row").filter(has_text=f"*.{HOST}")
                    await expect(row).to_contain_text("external")
                    await expect(page.locator("#ingresses")).to_contain_text(f"127.0.0.1:{console.port}")
                case "Address book":
                    await expect(page.locator("#checked")).to_contain_text("addresses reachable from here")
                    entry = page.get_by_role("article").filter(has_text=console.cluster.brokers[0].name)
                    await expect(entry).to_contain_text("config, advertisedListeners.0")
                    line = entry.get_by_role("listitem").filter(has_text=console.cluster.brokers[0].web)
                    await expect(line).to_contain_text("reachable (200)")
                    await expect(entry).to_contain_text("does not resolve")
                case "Decisions":
                    await expect(page.locator("#decisions tbody tr:not(.more)")).to_have_count(4)
                case "What-if":
                    await page.get_by_label("URL, as the client sees it").fill(f"https://{HOST}{LOOKUP}t")
                    await page.get_by_role("button", name="Explain").click()
                    await expect(page.locator("#verdict")).to_contain_text("Listener external")
                case "Config":
                    row = page.get_by_role("row").filter(has_text="ingresses.1.allowedListeners.0")
                    await expect(row).to_contain_text("nobodys")
                case "Changes":
                    await expect(page.locator("#generations")).to_contain_text("ingress partner")
                    await expect(page.locator("#findings")).to_contain_text("Warnings about the config")
            assert await overflow(page) <= 0, view
            assert await faults(page) == [], view
        assert said == []


async def test_decisions_view_updates_live_and_can_be_filtered_and_paused(
    console: ConsoleStack, browser: Browser
) -> None:
    rows = "#decisions tbody tr:not(.more)"
    async with console.running(), opened(browser, f"{console.url}#/decisions", DESK) as (page, said):
        await expect(page.locator("#decisions")).to_contain_text("No decisions yet")
        await console.hit("first")
        await expect(page.locator(rows)).to_have_count(1)
        await expect(page.locator(rows)).to_contain_text("public/default/first")
        await console.everything()
        await expect(page.locator(rows)).to_have_count(5)
        await expect(page.locator(rows).first).to_contain_text("new/bundle/t")

        for name, words in (("Misses", "miss: no-rule"), ("Leaks", "leak: body"), ("Redirects", "rewritten")):
            await page.get_by_role("button", name=name).click()
            await expect(page.locator(rows)).to_have_count(1)
            await expect(page.locator(rows)).to_contain_text(words)
        await console.hit()
        await console.redirect()
        await expect(page.locator(rows)).to_have_count(2)

        await page.get_by_role("button", name="All").click()
        await expect(page.locator(rows)).to_have_count(7)
        await page.get_by_role("button", name="Pause").click()
        await console.hit("meanwhile")
        await expect(page.locator("#left-out")).to_have_text("1 waiting")
        await expect(page.locator(rows)).to_have_count(7)
        await page.get_by_role("button", name="Go on").click()
        await expect(page.locator(rows)).to_have_count(8)
        assert said == []


async def test_overview_updates_figures_and_generation_without_reload(console: ConsoleStack, browser: Browser) -> None:
    async with console.running(), opened(browser, console.url, DESK) as (page, _):
        await expect(page.locator("#tiles")).to_contain_text("no lookups yet")
        await console.everything()
        await expect(page.locator("#tiles")).to_contain_text("75.0%of 4 lookups")
        await expect(page.locator("svg path.bars.miss")).not_to_have_attribute("d", "")
        console.write(redirects={"maxHops": 2})
        await expect(page.locator("#newest")).to_contain_text("5 is now 2")
        await expect(page.locator("#pills")).to_contain_text("generation 2")
        console.write(ingresses="none")
        await expect(page.locator("#attention")).to_contain_text("The newest config is not in force")


class TestWhatIf:
    async def test_what_if_explains_a_decision_rule_by_rule_and_hides_authorization(
        self, console: ConsoleStack, browser: Browser
    ) -> None:
        async with console.running(), opened(browser, f"{console.url}#/what-if", DESK) as (page, said):
            sent: list[str] = []
            page.on("request", lambda request: sent.append(request.post_data or ""))
            await page.get_by_label("URL, as the client sees it").fill(f"https://{HOST}{LOOKUP}t")
            await page.get_by_label("Headers").fill(
                "X-Pulsar-ListenerName: internal\nAuthorization: Bearer tell-nobody"
            )
            location = f"http://{console.cluster.brokers[2].name}:8080{LOOKUP}t"
            await page.get_by_label("And if a broker redirects to").fill(location)
            await page.get_by_role("button", name="Explain").click()
            verdict = page.locator("#verdict")
            await expect(verdict).to_contain_text("Refused with 403")
            await expect(verdict.locator("li.refused")).to_contain_text("'internal' may not be named")
            await page.get_by_label("Headers").fill("")
            await page.get_by_role("button", name="Explain").click()
            await expect(verdict.locator("li.decided")).to_contain_text(f"Host {HOST} matches ingress 'public'")
            await expect(verdict.locator("li.passed-over")).to_have_count(3)
            await expect(verdict).to_contain_text(f"https://broker-2.{HOST}{LOOKUP}t?listenerName=external")
            assert "tell-nobody" not in str(sent)
            assert json.loads(next(filter(None, sent)))["headers"][1] == {"name": "Authorization", "value": "hidden"}
            assert said == []

    async def test_form_is_prefilled_with_an_example_that_is_a_hit(
        self, console: ConsoleStack, browser: Browser
    ) -> None:
        async with console.running(), opened(browser, f"{console.url}#/what-if", DESK) as (page, said):
            await expect(page.get_by_label("URL, as the client sees it")).to_have_value(re.compile(f"https://{HOST}/"))
            await page.get_by_role("button", name="Explain").click()
            verdict = page.locator("#verdict")
            await expect(verdict).to_contain_text("Listener external")
            await expect(verdict).to_contain_text(f"https://broker-0.{HOST}{LOOKUP}orders?authoritative=true")
            await expect(verdict).to_contain_text("all addresses are on 'external'")
            assert await faults(page) == []
            assert said == []

    async def test_link_to_an_answer_asks_the_same_question_without_credentials(
        self, console: ConsoleStack, browser: Browser
    ) -> None:
        async with console.running(), opened(browser, f"{console.url}#/what-if", DESK) as (page, _):
            await page.get_by_label("URL, as the client sees it").fill(
                f"https://user:tell-nobody@unknown.example.org{LOOKUP}t?t%6Fken=tell-nobody&a=b"
            )
            await page.get_by_label("Headers").fill("X-Forwarded-For: 192.0.2.1\nX-Api-Token: tell-nobody")
            await page.get_by_label("And if a broker redirects to").fill("http://b.svc/?token=tell-nobody")
            await page.get_by_label("And if a broker answers").fill('{"brokerUrl": "pulsar://b.svc:6650"}')
            await page.get_by_label("through a trusted proxy").uncheck()
            await page.get_by_role("button", name="Explain").click()
            verdict = page.locator("#verdict")
            await expect(verdict).to_contain_text("No listener: a miss")
            await expect(verdict.locator("pre")).to_contain_text("hosts: [unknown.example.org]")
            told = await verdict.inner_text()
            link = page.url
            assert link.endswith(str(await verdict.get_by_role("link").get_attribute("href")))
            assert "tell-nobody" not in link
        async with console.running(), opened(browser, link, DESK) as (page, said):
            await expect(page.locator("#verdict")).to_contain_text("No listener: a miss")
            assert await page.locator("#verdict").inner_text() == told
            assert not await page.get_by_label("through a trusted proxy").is_checked()
            assert said == []

    async def test_redirect_of_a_refused_request_is_not_shown(self, console: ConsoleStack, browser: Browser) -> None:
        async with console.running(), opened(browser, f"{console.url}#/what-if", DESK) as (page, _):
            url = page.get_by_label("URL, as the client sees it")
            await expect(url).not_to_have_value("")
            await url.fill(f"https://{HOST}{LOOKUP}t?listenerName=internal")
            await page.get_by_role("button", name="Explain").click()
            await expect(page.locator("#verdict")).to_contain_text("Refused with 403")
            await expect(page.locator("#verdict")).not_to_contain_text("The redirect")

    async def test_malformed_url_or_header_shows_an_error_and_no_verdict(
        self, console: ConsoleStack, browser: Browser
    ) -> None:
        async with console.running(), opened(browser, f"{console.url}#/what-if", DESK) as (page, _):
            for url, headers, words in (
                ("pulsar.example.com", "", "is not a URL"),
                ("https://a/", "no colon here", "is not a header"),
            ):
                await page.get_by_label("URL, as the client sees it").fill(url)
                await page.get_by_label("Headers").fill(headers)
                await page.get_by_role("button", name="Explain").click()
                await expect(page.locator("#question-problem")).to_contain_text(words)
                await expect(page.locator("#verdict")).to_be_empty()
            assert await faults(page) == []

    async def test_recorded_decision_can_be_opened_in_what_if(self, console: ConsoleStack, browser: Browser) -> None:
        async with console.running(), opened(browser, f"{console.url}#/decisions", DESK) as (page, _):
            await console.miss("again")
            await page.locator("button.row").click()
            await page.get_by_role("link", name="What if it came again?").click()
            await expect(page.locator("#verdict")).to_contain_text("No listener: a miss")
            await expect(page.get_by_label("URL, as the client sees it")).to_have_value(
                f"https://elsewhere.example.org{LOOKUP}again"
            )


async def test_console_can_be_operated_by_keyboard_alone(console: ConsoleStack, browser: Browser) -> None:
    async with console.running(), opened(browser, console.url, DESK) as (page, _):
        focused = page.locator(":focus")
        await console.hit()
        await expect(page.locator("#pills")).to_contain_text("live")
        await page.keyboard.press("Tab")
        await expect(focused).to_have_text("Skip to the view")
        await page.keyboard.press("Enter")
        await page.keyboard.press("Tab")
        await expect(focused).to_have_attribute("href", "#/decisions?kind=lookup")  # the first of the view

        async def walk(words: str) -> None:
            """Tab on until what has the focus says this."""
            for _ in range(40):
                await page.keyboard.press("Tab")
                if await focused.count() and words in (await focused.inner_text() or "") + (
                    await focused.get_attribute("id") or ""
                ):
                    return
            pytest.fail(f"Tab does not reach {words}")

        await page.goto(f"{console.url}#/overview")
        await page.reload()
        await walk("Decisions")
        await page.keyboard.press("Enter")
        await expect(page.locator("h2:focus")).to_have_text("Decisions")
        await walk("Misses")
        await page.keyboard.press("Space")
        await expect(page.locator("#decisions")).to_contain_text("No misses yet")
        await page.keyboard.press("Shift+Tab")
        await page.keyboard.press("Space")
        await walk(":")
        await page.keyboard.press("Enter")
        await expect(page.locator("tr.more")).to_contain_text("persistent://public/default/orders")
        await expect(focused).to_have_attribute("aria-expanded", "true")

        await page.goto(f"{console.url}#/what-if")
        await walk("url")
        await page.keyboard.type(f"https://{HOST}{LOOKUP}t")
        await page.keyboard.press("Enter")
        await expect(page.locator("#verdict")).to_contain_text("Listener external")


async def test_console_views_show_empty_state_messages_when_there_is_no_data(
    console: ConsoleStack, browser: Browser
) -> None:
    async with (
        console.running(ingresses=[], advertisedListeners=[]),
        opened(browser, console.url, DESK) as (page, said),
    ):
        for view, where, words in (
            ("Overview", "#remarkable", "Every lookup that is remembered was a hit"),
            ("Overview", "#tiles", "no lookups yet"),
            ("Ingresses", "#ingresses", "No ingress is known"),
            ("Address book", "#book", "The address book is empty"),
            ("Decisions", "#decisions", "No decisions yet"),
            ("Changes", "#findings", "Discovery is off"),
        ):
            await go(page, view)
            await expect(page.locator(where)).to_contain_text(words)
            assert await faults(page) == [], view
        assert said == []


async def test_console_keeps_last_data_while_the_sidecar_is_down_and_recovers(
    console: ConsoleStack, browser: Browser
) -> None:
    rows = "#decisions tbody tr:not(.more)"
    async with console.running() as process, opened(browser, f"{console.url}#/decisions", DESK) as (page, _):
        await console.hit("known")
        await expect(page.locator(rows)).to_have_count(1)
        await process.end(signal.SIGKILL)
        await expect(page.get_by_role("alert").first).to_contain_text("The sidecar does not answer")
        await expect(page.locator("body")).to_have_class("stale")
        await expect(page.locator("#pills")).to_contain_text("away")
        await expect(page.locator(rows)).to_contain_text("public/default/known")  # what was known last stays
        await go(page, "Overview")
        await expect(page.locator("#tiles")).to_be_visible()
        assert await faults(page) == []
        async with console.running():
            await expect(page.locator("#pills")).to_contain_text("live")
            await expect(page.locator("#banner")).to_be_empty()
            await go(page, "Decisions")
            await console.hit("new")
            await expect(page.locator(rows)).to_have_count(1)
            await expect(page.locator(rows)).to_contain_text("public/default/new")


async def test_client_supplied_names_are_shown_as_text_and_do_not_overflow_the_window(
    console: ConsoleStack, browser: Browser
) -> None:
    markup = "%3Cimg%20src=x%20onerror=document.title=1%3E"
    long = "x" * 200
    async with console.running(), opened(browser, f"{console.url}#/decisions", PHONE) as (page, said):
        await console.ask(f"{LOOKUP}{markup}?listenerName={markup}")
        await console.hit(long)
        await console.ask(LOOKUP + "t", host=f"{'a' * 60}.{'b' * 60}.example.org")
        await expect(page.locator("#decisions tbody tr:not(.more)")).to_have_count(3)
        for row in await page.locator("button.row").all():
            await row.click()
        await expect(page.locator("#decisions")).to_contain_text("<img src=x onerror")
        assert await page.locator("#decisions img").count() == 0
        assert await overflow(page) <= 0
        await go(page, "Overview")
        await expect(page.locator("#remarkable")).to_contain_text("bbb")
        assert await overflow(page) <= 0
        assert said == []


async def test_address_book_with_300_brokers_can_be_searched(console: ConsoleStack, browser: Browser) -> None:
    template: list[dict[str, Any]] = [
        {"broker": f"b-{n}.brokers.svc", "listeners": f"internal:http://127.0.0.1:1,external:https://b-{n}.example"}
        for n in range(300)
    ]
    async with (
        console.running(advertisedListeners=template),
        opened(browser, f"{console.url}#/book", DESK) as (page, _),
    ):
        entries = page.get_by_role("article").filter(has_text="brokers.svc")
        await expect(entries).to_have_count(300)
        await page.locator("#book").get_by_label("Find").fill("b-299.")
        await expect(entries).to_have_count(1)
        await page.locator("#book").get_by_label("Find").fill("nowhere")
        await expect(page.locator("#book-content")).to_contain_text("None of 300 has “nowhere”")
