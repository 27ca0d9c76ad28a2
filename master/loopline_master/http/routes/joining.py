"""Joining: an admin creates a token with which new computers become workers."""

from __future__ import annotations

import time
from typing import Annotated

from aiohttp import web
from pydantic import Field

from loopline_master.certificates.encryption import Encryption
from loopline_master.http.auth import ADMINS, OPEN, WORKERS, AuditRecorder, Auth, Caller
from loopline_master.http.lookups import found
from loopline_master.http.operations import Routes
from loopline_master.http.parameters import Cursor, Limit
from loopline_master.http.trusted_by import reached_at
from loopline_master.settings import Limits, MasterSettings
from loopline_master.store import Store
from loopline_shared.rest.access import JoinRequest, JoinTokenCreated, JoinTokenRequest, JoinTokenView, TokenView
from loopline_shared.rest.bodies import Page

routes = Routes("access")

TokenId = Annotated[str, Field(pattern=r"^[0-9a-f]{1,32}$", description="The id: what follows `lj_` in it")]


@routes("GET /join-tokens", ADMINS)
async def list_join_tokens(
    store: Store, limits: Limits, cursor: Cursor | None = None, limit: Limit = 100
) -> Page[JoinTokenView]:
    """List join tokens, used and expired ones included; never their secrets."""
    return await store.tokens.join_tokens(cursor=cursor, limit=limits.page_size(limit))


@routes("POST /join-tokens", ADMINS, status=201)
async def create_join_token(
    auth: Auth, settings: MasterSettings, encryption: Encryption, request: web.Request, body: JoinTokenRequest
) -> JoinTokenCreated:
    """Create a token with which a number of computers can join. Only this answer has its secret."""
    made = await auth.create_join_token(body)
    return made.model_copy(update=reached_at(request, settings, encryption))


@routes("POST /join-tokens/{token}/revoke", ADMINS)
async def revoke_join_token(store: Store, token: TokenId) -> JoinTokenView:
    """Revoke a join token; computers that have joined with it stay."""
    return found(await store.tokens.revoke_join_token(token, time.time()), f"join token {token}")


@routes("POST /join", OPEN, status=201, declines=(403, 429))
async def join(auth: Auth, audit: AuditRecorder, request: web.Request, body: JoinRequest) -> TokenView:
    """Let a computer join. Repeat the request if the answer was lost: the same request counts once."""
    token = await auth.join(body, request.remote or "")
    caller = Caller(token.name, token.role, token.worker, token.id)
    await audit.note(audit.begin(caller, request, "join"), token.id)
    return token


@routes("POST /leave", WORKERS, declines=(409,))
async def leave(auth: Auth, request: web.Request) -> TokenView:
    """Revoke the token with which the calling computer has joined."""
    return await auth.leave(request)
