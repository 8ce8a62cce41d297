"""The page of a server in a browser, used as a person uses it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.browser import NAMES, Browser, executable
from tests.serving import Served, served

from tidegraph import Live, LiveSettings

pytestmark = pytest.mark.skipif(executable() is None, reason=f"none of {NAMES} is installed")


@pytest.fixture(scope="module")
def opened() -> Iterator[Browser]:
    path = executable()
    assert path is not None
    with Browser(path) as browser:
        yield browser


@pytest.fixture
def browser(opened: Browser) -> Browser:
    opened.open("about:blank", width=800)  # the page of the last test asks no more
    opened.problems.clear()
    return opened


@pytest.fixture
def live(tmp_path: Path) -> Iterator[Live]:
    settings = LiveSettings(columns=4, idle_s=0.1, lateness="1h", learn=False, unit="s")
    with Live.open(tmp_path / "live", settings=settings) as made:
        names = ["bob", "cleo", "dan", "<b>eve</b>"]
        begin = 1_700_000_000
        made.ingest(
            [
                {"src": "ann", "dst": names[k % 3 if k % 7 else 3], "t": begin + 60 * k}
                for k in range(80)
            ],
            wait="applied",
        )
        yield made


@pytest.fixture
def client(live: Live) -> Iterator[Served]:
    with served(live) as made:
        yield made


def text(of: str) -> str:
    return f"(document.querySelector({of!r})?.innerText ?? '')"


@pytest.mark.parametrize(("width", "dark"), [(1280, False), (390, True)])
def test_a_person_reads_an_answer_sends_an_event_and_sees_it_arrive(
    browser: Browser, client: Served, width: int, dark: bool
) -> None:
    browser.open(str(client.base_url), width=width, dark=dark)
    browser.until(f"{text('#rate-note')}.startsWith('80 events, 5 nodes')")
    browser.until(f"{text('#stream li')}.includes('2023-11-14 23:32:20')")

    browser.click("#name")
    browser.type_in("ann", submit=True)
    browser.until("!document.querySelector('#node').hidden")
    assert browser.evaluate(text("#node-name")) == "ann"
    assert "80 events from it, 0 to it" in browser.evaluate(text("#node-facts"))
    top = client.get("/v1/nodes/ann/top").json()["data"]["names"]
    shown = browser.evaluate("[...document.querySelectorAll('#top .link')].map(e => e.innerText)")
    assert shown == top
    assert "<b>eve</b>" in shown  # shown as it is written, not as markup
    browser.until("document.querySelectorAll('#moved svg').length === 2")

    browser.click("#top .ask")
    assert "They met" in browser.until(
        "document.querySelector('.reasons')?.innerText.includes('met') &&"
        " document.querySelector('.reasons').innerText"
    )

    browser.click("#src")
    browser.type_in("ann")
    browser.click("#dst")
    browser.type_in("zoe", submit=True)
    browser.until(f"{text('#sent')}.startsWith('Stored and applied as event 8')")
    browser.until(f"{text('#stream li')}.includes('zoe')")
    browser.until("[...document.querySelectorAll('#top .link')].some(e => e.innerText === 'zoe')")
    browser.until(f"{text('#rate-note')}.startsWith('81 events, 6 nodes')")

    browser.click("#name")
    browser.evaluate("document.querySelector('#name').select()")
    browser.type_in("nobody", submit=True)
    browser.until("!document.querySelector('#look-problem').hidden")
    assert "nobody" in browser.evaluate(text("#look-problem"))
    assert browser.evaluate("document.documentElement.scrollWidth") == width
    assert [each for each in browser.problems if "404" not in each] == []  # the unknown node


def test_a_token_is_asked_for_and_stays_out_of_addresses(browser: Browser, live: Live) -> None:
    with served(live, token="a-good-token") as client:
        browser.open(str(client.base_url), width=1280)
        browser.until("!document.querySelector('#token-form').hidden")
        browser.click("#token")
        browser.type_in("a-good-token", submit=True)
        browser.until(f"{text('#rate-note')}.startsWith('80 events')")
        browser.until("document.querySelectorAll('#stream li').length > 10")
        assert "token" not in browser.evaluate("location.href")


@pytest.mark.parametrize("width", [1280, 390])
def test_the_reference_fits_the_screen(browser: Browser, client: Served, width: int) -> None:
    browser.open(f"{client.base_url}/docs", width=width)
    assert browser.evaluate("document.documentElement.scrollWidth") == width
    assert browser.problems == []
