"""Without a browser, tests of the page name the missing package: skipped, or failed if they are required."""

from __future__ import annotations

import pytest

from tests.web import browser

HINT = "Debian: apt install chromium"


@pytest.fixture
def bare_computer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(browser, "ON_MACOS", ())


@pytest.mark.usefixtures("bare_computer")
def test_it_is_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LOOPLINE_REQUIRE_BROWSER", raising=False)
    with pytest.raises(pytest.skip.Exception, match=HINT):
        browser.chromium()


@pytest.mark.usefixtures("bare_computer")
def test_it_fails_where_it_must_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOOPLINE_REQUIRE_BROWSER", "1")
    with pytest.raises(pytest.fail.Exception, match=HINT):
        browser.chromium()
