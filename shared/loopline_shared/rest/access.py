"""Bodies of the REST API about access: tokens, join lines, and the identity of the caller."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import ConfigDict, Field

from loopline_shared.model import Name, Units
from loopline_shared.rest.bodies import Body
from loopline_shared.rest.times import Time

Role = Literal["admin", "user", "reader", "worker", "scraper"]

Offers = Annotated[dict[Name, Units], Field(max_length=50)]
"""Units of resources, by name, that a token's worker may offer at most; others it may not offer."""


class TokenRequest(Body):
    model_config = ConfigDict(extra="forbid", strict=True)

    name: Name
    role: Role
    expires_s: Annotated[float | None, Field(gt=0, le=3660 * 86400)] = None  # from now on; null: until it is revoked
    offers: Offers | None = None  # that a worker with it may offer at most; null: anything


class TokenView(Body):
    id: Annotated[str, Field(max_length=32)]
    name: str
    role: Role
    worker: str | None = None  # the only worker that it lets in; null: any, where its role does
    created_at: Time
    revoked_at: Time | None = None
    expires_at: Time | None = None  # null: it is of use until it is revoked
    used_at: Time | None = None  # the last request or link that began with it; null: it has not been used
    used_from: str = ""  # the address of that request
    offers: Offers | None = None  # that its worker may offer at most; null: anything


class TokenCreated(TokenView):
    secret: str  # shown this once
    address: str = ""  # where others reach this master, as far as it can tell
    fingerprint: str = ""  # SHA-256 of its CA's key, if it has one


class WebhookSecret(Body):
    secret: str  # signs webhooks about the caller's jobs, for a library of Standard Webhooks


class JoinTokenRequest(Body):
    model_config = ConfigDict(extra="forbid", strict=True)

    uses: Annotated[int, Field(ge=1, le=10_000, description="computers that may join with it")] = 1
    expires_s: Annotated[float, Field(gt=0, le=366 * 86400, description="from now on")] = 86400.0
    offers: Offers | None = None  # that each computer may offer at most; null: anything


class JoinTokenView(Body):
    id: Annotated[str, Field(max_length=32)]
    uses: int
    used: int
    created_at: Time
    expires_at: Time
    revoked_at: Time | None = None
    offers: Offers | None = None  # that each computer may offer at most; null: anything


class JoinTokenCreated(JoinTokenView):
    secret: str  # shown this once
    address: str  # where other computers reach this master, as far as it can tell
    fingerprint: str = ""  # SHA-256 of its CA's key, if it has one


class JoinRequest(Body):
    """A computer that wants to join. It has generated its worker's token and sends the hash to the master."""

    model_config = ConfigDict(extra="forbid", strict=True)

    secret: Annotated[str, Field(max_length=200, description="of a join token")]
    worker: Name
    token: Annotated[str, Field(pattern=r"^[0-9a-f]{8}$", description="the new token's id")]
    hash: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$", description="the new token's SHA-256")]


class AuditEntry(Body):
    """Something that was done at the master."""

    id: int
    at: Time
    who: str  # the user or worker
    role: Role
    token: str  # its id; empty where the master uses no tokens
    address: str  # from where
    did: str  # the operation, by its name in this document
    on: str  # the ids in the operation's path, or the id of the created object


class EncryptionView(Body):
    is_on: bool  # the port speaks TLS
    pin: str = ""  # SHA-256 of the CA's key; empty where the operator gave the certificate
    names: tuple[str, ...] = ()  # host names and addresses that its certificate has
    expires_at: Time | None = None  # of the certificate, which is renewed before


class Whoami(Body):
    name: str
    role: Role
    version: str
