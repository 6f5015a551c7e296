"""A real Chromium on the pages, and what must not happen in it."""

from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Page, sync_playwright

import servers
from holdfast.web.security import cookie_name

WAIT_MS = 30_000


@pytest.fixture(scope="module")
def browser():
    path = servers.chromium()
    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield opened
        opened.close()


class Visit:
    """A page that notes what must not happen: scripts of others, requests that leave, errors."""

    def __init__(self, browser, address: str, token: str, **options) -> None:
        self.address = address
        self.context = browser.new_context(**{"viewport": {"width": 1280, "height": 860}, **options})
        self.context.add_cookies([{"name": cookie_name(urlsplit(address).port), "value": token, "url": address}])
        self.page: Page = self.context.new_page()
        self.page.set_default_timeout(WAIT_MS)
        self.outside, self.errors, self.dialogs = [], [], []
        self.page.on("request", lambda r: r.url.startswith((address, "data:")) or self.outside.append(r.url))
        self.page.on("pageerror", lambda e: self.errors.append(str(e)))
        self.page.on("console", lambda m: self.errors.append(m.text) if m.type == "error" else None)
        self.page.on("dialog", lambda d: (self.dialogs.append(d.message), d.dismiss()))

    def go(self, path: str) -> Page:
        self.page.goto(self.address + path)
        return self.page

    def check(self) -> None:
        assert (self.outside, self.errors, self.dialogs) == ([], [], [])
