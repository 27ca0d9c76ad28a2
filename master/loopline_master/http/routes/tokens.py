"""Tokens: create, list, revoke."""

from __future__ import annotations

from typing import Annotated

from aiohttp import web
from pydantic import Field

from loopline_master.certificates.encryption import Encryption
from loopline_master.http.auth import ADMINS, ALL, USERS, Auth, Caller
from loopline_master.http.lookups import found
from loopline_master.http.operations import Routes
from loopline_master.http.parameters import Cursor, Limit
from loopline_master.http.trusted_by import reached_at
from loopline_master.notify.webhook import WebhookSecrets
from loopline_master.settings import Limits, MasterSettings
from loopline_master.store import Store
from loopline_shared import __version__
from loopline_shared.model import Name
from loopline_shared.rest.access import AuditEntry, TokenCreated, TokenRequest, TokenView, WebhookSecret, Whoami
from loopline_shared.rest.bodies import Page
from loopline_shared.rest.times import Moment

routes = Routes("access")

Doer = Annotated[Name, Field(description="Only actions of this user or worker")]
TokenId = Annotated[str, Field(pattern=r"^[0-9a-f]{1,32}$", description="The token's id: what follows `ll_` in it")]


@routes("GET /tokens", ADMINS)
async def list_tokens(
    auth: Auth, store: Store, limits: Limits, cursor: Cursor | None = None, limit: Limit = 100
) -> Page[TokenView]:
    """List tokens, revoked and expired ones included, with their last use; never their secrets."""
    await auth.times.store()
    return await store.tokens.page(cursor=cursor, limit=limits.page_size(limit))


@routes("POST /tokens", ADMINS, status=201)
async def create_token(
    auth: Auth, settings: MasterSettings, encryption: Encryption, request: web.Request, body: TokenRequest
) -> TokenCreated:
    """Create a token. Only this answer has its secret."""
    made = await auth.create(body.name, body.role, body.expires_s, body.offers)
    return made.model_copy(update=reached_at(request, settings, encryption))


@routes("POST /tokens/{token}/revoke", ADMINS)
async def revoke_token(auth: Auth, token: TokenId) -> TokenView:
    """Revoke a token."""
    return found(await auth.revoke(token), f"token {token}")


@routes("GET /audit-log", ADMINS)
async def list_audit_log(
    store: Store,
    limits: Limits,
    who: Doer | None = None,
    since: Moment = 0.0,
    cursor: Cursor | None = None,
    limit: Limit = 100,
) -> Page[AuditEntry]:
    """List changes made by requests, latest first: who made them, and from where."""
    return await store.audit_log.page(who=who, since=since, cursor=cursor, limit=limits.page_size(limit))


@routes("GET /whoami", ALL)
async def whoami(caller: Caller) -> Whoami:
    """Return the name and the role of the token's owner."""
    return Whoami(name=caller.name, role=caller.role, version=__version__)


@routes("GET /webhook-secret", USERS)
async def get_webhook_secret(secrets: WebhookSecrets, caller: Caller) -> WebhookSecret:
    """Return the secret with which the receiver of your webhooks can verify that they come from this master."""
    return WebhookSecret(secret=secrets.of(caller.name))
