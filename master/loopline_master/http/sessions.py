"""Sessions of browsers: a cookie that stands for a token without containing it.

It has the form ``<SHA-256 of the token>.<until>.<seal>``. The seal is an HMAC with a key that is kept beside the
master's tokens: nothing is stored for a session, and it survives a restart. A stolen cookie is valid until ``until``
at most, and no longer than its token.
"""

from __future__ import annotations

import hmac
import time
from hashlib import sha256

from aiohttp import web

from loopline_shared.errors import LooplineError

COOKIE = "loopline_session"
_ENCRYPTED_COOKIE = f"__Host-{COOKIE}"
"""Over TLS. Browsers accept this name only from this host over https, so no neighbour can set it."""
LASTS_S = 7 * 86400
_SAFE = ("GET", "HEAD")
_HINT = "use the page that this master serves; a proxy in front of it must pass on the Host header"


class Sessions:
    """Makes and checks session cookies."""

    def __init__(self, key: bytes) -> None:
        self._key = key

    def cookie(self, token_hash: str) -> str:
        """Return a cookie for the token with this hash."""
        body = f"{token_hash}.{int(time.time()) + LASTS_S}"
        return f"{body}.{self._seal(body)}"

    def token_hash(self, cookie: str) -> str | None:
        """Return the hash of the cookie's token; None if the cookie is forged or has expired."""
        body, _, seal = cookie.rpartition(".")
        if not hmac.compare_digest(self._seal(body).encode(), seal.encode(errors="replace")):
            return None
        token_hash, _, until = body.partition(".")
        return token_hash if time.time() < int(until) else None

    def _seal(self, body: str) -> str:
        return hmac.new(self._key, body.encode(errors="replace"), sha256).hexdigest()


def keep_in_browser(request: web.Request, response: web.Response, cookie: str) -> None:
    """Set the session's cookie: hidden from scripts, and sent only by requests of our own site."""
    response.set_cookie(
        _name(request), cookie, max_age=LASTS_S, path="/", httponly=True, samesite="Strict", secure=_is_https(request)
    )


def forget_in_browser(request: web.Request, response: web.Response) -> None:
    """Delete the cookie."""
    for name in (COOKIE, _ENCRYPTED_COOKIE):
        if name in request.cookies or name == _name(request):
            secure = name == _ENCRYPTED_COOKIE or _is_https(request)
            response.del_cookie(name, path="/", httponly=True, samesite="Strict", secure=secure)


def session_cookie(request: web.Request) -> str | None:
    """Return the request's session cookie; over TLS only the one that no neighbour can set."""
    names = (_ENCRYPTED_COOKIE,) if request.secure else (_ENCRYPTED_COOKIE, COOKIE)
    return next((request.cookies[name] for name in names if name in request.cookies), None)


def check_own_page(request: web.Request) -> None:
    """Raises LooplineError if another site's page makes the browser send a request that may change something."""
    is_link = "Upgrade" in request.headers  # a WebSocket, which pages of other sites may open
    if (request.method not in _SAFE or is_link) and not is_own_page(request):
        raise foreign_page()


def is_own_page(request: web.Request) -> bool:
    """True if the request's Origin is this master's address, or that address by https behind a proxy."""
    return request.headers.get("Origin") in (f"{request.scheme}://{request.host}", f"https://{request.host}")


def foreign_page() -> LooplineError:
    """Return the error for requests of other sites' pages."""
    return LooplineError("foreign_page", "this request comes from another site's page", _HINT, status=403)


def _name(request: web.Request) -> str:
    return _ENCRYPTED_COOKIE if _is_https(request) else COOKIE


def _is_https(request: web.Request) -> bool:
    return request.secure or request.headers.get("Origin", "").startswith("https://")
