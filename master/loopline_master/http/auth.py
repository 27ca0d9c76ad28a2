"""Authentication and authorization of callers, and the audit log of their actions. Every bearer token has one role.

A token has the form ``ll_<id>_<secret>``. Only its SHA-256 is stored and compared: the secrets are long and random,
so a slow hash or a comparison in constant time would add nothing.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from secrets import token_hex, token_urlsafe
from urllib.parse import urlsplit

from aiohttp import web

from loopline_master.admission.buckets import Buckets
from loopline_master.core.kernel.effects import Effects
from loopline_master.files.removal_clock import RemovalClock
from loopline_master.http.sessions import Sessions, check_own_page, foreign_page, is_own_page, session_cookie
from loopline_master.settings import MasterSettings, is_loopback
from loopline_master.store import Store
from loopline_master.store.queries.audit_log import AuditedAction
from loopline_master.store.token_store import TOKEN_REFUSED, TokenStore
from loopline_shared.errors import ExceededLimit, LooplineError
from loopline_shared.joining import hash_of as _hash
from loopline_shared.rest.access import (
    JoinRequest,
    JoinTokenCreated,
    JoinTokenRequest,
    JoinTokenView,
    Offers,
    Role,
    TokenCreated,
    TokenView,
)

Access = tuple[Role, ...]
"""Roles that may use an operation; empty: anyone, even without a token."""
OPEN: Access = ()
ADMINS: Access = ("admin",)
USERS: Access = ("admin", "user")
READERS: Access = ("admin", "user", "reader")
WORKERS: Access = ("admin", "worker")
STORERS: Access = ("admin", "user", "worker")
SCRAPERS: Access = (*READERS, "scraper")
ALL: Access = ("admin", "user", "reader", "worker")

_PREFIX = "ll_"
_JOIN_PREFIX = "lj_"
_JOIN_HINT = "an admin makes a new one with `loopline token join`"
_MOST_FAILURES = 100
"""Wrong tokens from one address: this many at once, and one more each second."""
_CUT = 200
"""Longest name of a changed object in the audit log, in characters."""
_HINT = "send Authorization: Bearer <token>; an admin makes tokens with `loopline token create`"
_STORED_EVERY_S = 60.0


@dataclass(frozen=True, slots=True)
class Caller:
    """The user or worker who makes a request."""

    name: str
    role: Role
    worker: str | None = None  # the only worker name that the token allows
    token: str = ""  # its id; empty if this master uses no tokens
    expires_at: float | None = None  # of the token
    offers: Offers | None = None  # units that a worker with the token may offer at most; None: any

    def may_steer(self, owner: str) -> bool:
        """True if the caller is the owner or an admin."""
        return self.role == "admin" or (self.role == "user" and self.name == owner)

    def check_may_steer(self, owner: str) -> None:
        """Raises LooplineError unless the caller is the owner or an admin."""
        if not self.may_steer(owner):
            raise LooplineError("not_yours", f"this job is {owner}'s", "ask them or an admin", status=403)


ANYBODY = Caller("", "reader")
"""The caller of an operation that is open to anyone."""


class Auth:
    """Checks tokens and sessions, and issues tokens."""

    def __init__(
        self, tokens: TokenStore, session_key: bytes, end: Callable[[str], None], *, required: bool = True
    ) -> None:
        """``end``: ends the links and streams of a token that was revoked."""
        self._tokens = tokens
        self._end = end
        self.times = TokenTimes(tokens, end)
        self._sessions = Sessions(session_key)
        self._required = required
        self._known: dict[str, Caller] = {}  # callers found in the store, by hash of their token
        self._admitted: set[str] = set()  # ids of their tokens
        self._failures = Buckets(burst=_MOST_FAILURES, per_s=1)

    async def admit(self, request: web.Request, access: Access) -> Caller:
        """Return the caller. Raises LooplineError if the caller is unknown or has no right to the operation."""
        if not access:
            return ANYBODY
        caller = await self._caller(request) if self._required else _local_caller(request)
        self._note_use(caller, request)
        if caller.role not in access:
            message = f"a token of role {caller.role} may not do this; it takes {' or '.join(access)}"
            raise LooplineError("forbidden", message, "ask an admin for a token of another role", status=403)
        return caller

    def still_admits(self, caller: Caller, address: str) -> bool:
        """True if a caller who was admitted on a link earlier would be admitted now; ``admit`` says why not."""
        if not caller.token:  # this master uses none
            return not self._required
        if caller.token not in self._admitted or _has_expired(caller):
            return False
        self.times.note_use(caller.token, address, caller.expires_at)
        return True

    async def sign_in(self, request: web.Request, secret: str) -> tuple[Caller, str]:
        """Return the caller who signs in, and the session cookie; it is empty if this master uses no tokens."""
        if not self._required:
            return _local_caller(request), ""
        if "Origin" in request.headers and not is_own_page(request):
            raise foreign_page()
        caller = await self._check_secret(secret, request.remote or "")
        self._note_use(caller, request)
        if caller.role not in READERS:
            hint = "sign in with a token of role admin, user or reader"
            raise LooplineError("forbidden", f"a token of role {caller.role} cannot open this page", hint, status=403)
        return caller, self._sessions.cookie(_hash(secret))

    async def signed_in(self, request: web.Request) -> Caller | None:
        """Return the user of this browser's session; None without a session."""
        try:
            return await self.admit(request, READERS)
        except LooplineError as error:
            if error.status not in (401, 403):
                raise
            return None

    async def create(
        self, name: str, role: Role, expires_s: float | None = None, offers: Offers | None = None
    ) -> TokenCreated:
        """Create a token, valid for ``expires_s``; None: until it is revoked. Only this answer has its secret."""
        id_, now = token_hex(4), time.time()
        expires_at = None if expires_s is None else now + expires_s
        token = TokenView(id=id_, name=name, role=role, created_at=now, expires_at=expires_at, offers=offers)
        secret = f"{_PREFIX}{id_}_{token_urlsafe(32)}"
        await self._tokens.add(token, _hash(secret))
        return TokenCreated(**token.model_dump(), secret=secret)

    async def revoke(self, token_id: str) -> TokenView | None:
        """Revoke a token; None if there is no such token."""
        await self.times.store()  # so that the answer has the last use
        revoked = await self._tokens.revoke(token_id, time.time())
        self._forget_known()
        self._end(token_id)
        return revoked

    def on_commit(self, effects: Effects) -> None:
        """End the links and streams of forgotten workers, whose tokens are gone too."""
        if effects.gone:
            ended = [caller.token for caller in self._known.values() if caller.worker in effects.gone]
            self._forget_known()
            for token in ended:
                self._end(token)

    async def leave(self, request: web.Request) -> TokenView:
        """Revoke the token that this request comes with. Raises LooplineError if it belongs to no joined computer."""
        own = await self._tokens.by_hash(_hash(request.headers.get("Authorization", "").partition(" ")[2]))
        if own is None or own.worker is None:
            message = "this token was not made by joining: other workers may have it too"
            raise LooplineError("not_joined", message, "an admin revokes it: loopline token revoke", status=409)
        return await self.revoke(own.id) or own

    async def create_join_token(self, request: JoinTokenRequest) -> JoinTokenCreated:
        """Create a token with which computers join. Only this answer has its secret."""
        id_, now = token_hex(4), time.time()
        secret = f"{_JOIN_PREFIX}{id_}_{token_urlsafe(32)}"
        expires_at = now + request.expires_s
        view = JoinTokenView(
            id=id_, uses=request.uses, used=0, created_at=now, expires_at=expires_at, offers=request.offers
        )
        await self._tokens.add_join_token(view, _hash(secret))
        return JoinTokenCreated(**view.model_dump(), secret=secret, address="")

    async def join(self, wish: JoinRequest, address: str) -> TokenView:
        """Accept a computer with the token that it generated. It may repeat the request if the answer was lost."""
        secret = _hash(wish.secret)
        if not await self._tokens.knows_join_token(secret):
            self._count_failure(address)
            raise _join_refused("join_refused", "it is not known here")
        token = TokenView(id=wish.token, name=wish.worker, role="worker", worker=wish.worker, created_at=time.time())
        outcome = await self._tokens.join(secret, token, wish.hash)
        if isinstance(outcome, TokenView):
            return outcome
        self._count_failure(address)
        raise _join_refused("join_token_refused" if outcome == TOKEN_REFUSED else "join_refused", outcome)

    async def by_secret(self, secret: str) -> Caller | None:
        """Return the caller with this secret; None if it is not valid."""
        return await self._by_hash(_hash(secret))

    async def _by_hash(self, key: str) -> Caller | None:
        known, admitted = self._known, self._admitted  # a revocation replaces them: a revoked token must not be added
        if key not in known:
            token = await self._tokens.by_hash(key)
            if token is None or token.revoked_at is not None:
                return None
            known[key] = Caller(token.name, token.role, token.worker, token.id, token.expires_at, offers=token.offers)
            admitted.add(token.id)
        caller = known[key]
        return None if _has_expired(caller) else caller

    def _forget_known(self) -> None:
        self._known, self._admitted = {}, set()

    def _note_use(self, caller: Caller, request: web.Request) -> None:
        if caller.token:
            self.times.note_use(caller.token, request.remote or "", caller.expires_at)

    async def _caller(self, request: web.Request) -> Caller:
        if "Authorization" not in request.headers and (cookie := session_cookie(request)):
            return await self._session_caller(request, cookie)
        scheme, _, secret = request.headers.get("Authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not secret:
            raise LooplineError("no_token", "this needs a token", _HINT, status=401)
        return await self._check_secret(secret, request.remote or "")

    async def _session_caller(self, request: web.Request, cookie: str) -> Caller:
        """Return the caller who signed in from this browser."""
        check_own_page(request)
        key = self._sessions.token_hash(cookie)
        caller = await self._by_hash(key) if key else None
        if caller is None:
            raise LooplineError("signed_out", await self._why_out(key), "sign in with a valid token", status=401)
        return caller

    async def _why_out(self, key: str | None) -> str:
        """Return why a session's token is no longer valid. Only its holder has the cookie, so only they learn it."""
        token = await self._tokens.by_hash(key) if key else None
        if token is None:
            return "you are no longer signed in"
        return f"your token {token.id} {'was revoked' if token.revoked_at else 'has expired'}"

    async def _check_secret(self, secret: str, address: str) -> Caller:
        """Return the caller with this secret. Raises LooplineError if it is wrong."""
        caller = await self.by_secret(secret)
        if caller is None:
            self._count_failure(address)
            raise LooplineError("wrong_token", "invalid, expired or revoked token", _HINT, status=401)
        return caller

    def _count_failure(self, address: str) -> None:
        """Count a wrong secret. Raises LooplineError (429) if there were too many from this address.

        The secret is always looked up first: others may have the same address behind a router.
        """
        if self._failures.level(address) < 1:
            raise _too_many_failures()
        self._failures.spend(address)


class AuditRecorder:
    """Records in the audit log the changes that requests make: who asked for them, and from where."""

    def __init__(self, store: Store, settings: MasterSettings, now: RemovalClock) -> None:
        self._log, self._now = store.audit_log, now
        self._keep_s = settings.keep_audit_days * 86400.0

    def begin(self, caller: Caller, request: web.Request, did: str) -> AuditedAction:
        """Return the caller's action on the object that the request's path names."""
        return AuditedAction(
            at=time.time(),
            who=caller.name,
            role=caller.role,
            token=caller.token,
            address=request.remote or "",
            did=did,
            on=" ".join(request.match_info.values())[:_CUT],
            forgets_before=self._now() - self._keep_s,
        )

    async def note(self, action: AuditedAction, made: str = "") -> None:
        """Record an action that is done, unless a step has recorded it. ``made``: id of a created object."""
        if not action.is_noted:
            action.on = made[:_CUT] or action.on
            await self._log.note(action)


def _has_expired(caller: Caller) -> bool:
    return caller.expires_at is not None and caller.expires_at <= time.time()


def _join_refused(code: str, reason: str) -> LooplineError:
    return LooplineError(code, f"this join token is refused: {reason}", _JOIN_HINT, status=403)


def _too_many_failures() -> LooplineError:
    quota = ExceededLimit(_MOST_FAILURES, window_s=_MOST_FAILURES, again_s=1)
    return LooplineError("too_many_failures", "too many wrong tokens from your address", "wait", 429, quota=quota)


def _local_caller(request: web.Request) -> Caller:
    """Return the caller of a master without tokens. Raises LooplineError unless it is a program on this computer.

    A web page of another origin in a browser on this computer is refused.
    """
    here = f"{request.scheme}://{request.host}"
    is_ours = is_loopback(_host_of(here)) and request.headers.get("Origin", here) == here
    if not is_ours:
        raise LooplineError("foreign_page", "this master is for programs on its own computer", status=403)
    return Caller("local", "admin")


def _host_of(url: str) -> str:
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        return ""


class TokenTimes:
    """Remembers uses, storing them once a minute and before they are read, and ends links of expired tokens."""

    def __init__(self, tokens: TokenStore, end: Callable[[str], None]) -> None:
        """``end``: ends the links and streams of a token."""
        self._tokens = tokens
        self._end = end
        self._uses: dict[str, tuple[float, str]] = {}
        self._expiring: dict[str, float] = {}  # of tokens used since the start

    def note_use(self, token: str, address: str, expires_at: float | None) -> None:
        """Record the use of a valid token."""
        now = time.time()
        self._uses[token] = (now, address)
        if expires_at is not None and token not in self._expiring:
            self._expiring[token] = expires_at
            asyncio.get_running_loop().call_later(expires_at - now, self._expire, token)

    def end_expired(self, now: float) -> None:
        """End the links and streams of the tokens that have expired."""
        for token in [token for token, expires_at in self._expiring.items() if expires_at <= now]:
            self._expire(token)

    def _expire(self, token: str) -> None:
        if self._expiring.pop(token, None) is not None:
            self._end(token)

    async def store(self) -> None:
        """Store the uses that are not stored yet."""
        uses, self._uses = self._uses, {}
        if uses:
            await self._tokens.note_uses(uses)

    async def run(self) -> None:
        """Store the uses once a minute, and end links of tokens that expired early when the clock was set forward."""
        while True:
            await asyncio.sleep(_STORED_EVERY_S)
            self.end_expired(time.time())
            await self.store()
