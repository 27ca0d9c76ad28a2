"""Sessions: signing in and out from a browser."""

from __future__ import annotations

from typing import Annotated

from aiohttp import web
from pydantic import ConfigDict, Field, RootModel

from loopline_master.http.auth import OPEN, AuditRecorder, Auth, Caller
from loopline_master.http.operations import Routes
from loopline_master.http.sessions import forget_in_browser, keep_in_browser
from loopline_shared import __version__
from loopline_shared.rest.access import Whoami
from loopline_shared.rest.bodies import Body

routes = Routes("access")

COOKIE = {"Set-Cookie": "The session, used by requests without an Authorization header; scripts cannot read it"}


class SignIn(Body):
    """A token to sign in with."""

    model_config = ConfigDict(extra="forbid", strict=True)

    token: Annotated[str, Field(max_length=200)]


class Session(RootModel[Whoami | None]):
    """The user who is signed in; null without a session."""


@routes("GET /session", OPEN)
async def get_session(auth: Auth, request: web.Request) -> Session:
    """Return the user who is signed in from this browser, if there is one."""
    caller = await auth.signed_in(request)
    return Session(caller and _whoami(caller))


@routes("POST /session", OPEN, answer=Whoami, headers=COOKIE, declines=(401, 403, 429))
async def sign_in(auth: Auth, audit: AuditRecorder, request: web.Request, body: SignIn) -> web.Response:
    """Sign in with a token: a cookie then authenticates this browser for at most a week.

    Requests that change something must come from this master's own page: their Origin is checked.
    """
    caller, cookie = await auth.sign_in(request, body.token)
    await audit.note(audit.begin(caller, request, "sign_in"))
    response = web.Response(text=_whoami(caller).model_dump_json(), content_type="application/json")
    if cookie:
        keep_in_browser(request, response, cookie)
    return response


@routes("DELETE /session", OPEN, status=204)
async def sign_out(request: web.Request) -> web.Response:
    """Sign out: delete this browser's session."""
    response = web.Response(status=204)
    forget_in_browser(request, response)
    return response


def _whoami(caller: Caller) -> Whoami:
    return Whoami(name=caller.name, role=caller.role, version=__version__)
