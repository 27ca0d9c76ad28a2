"""Trust in a master: by the pin in a line, which is the SHA-256 of the public key of its CA.

The pin is enough to tell the CA's certificate, wherever that comes from: it is fetched over a connection that proves
nothing yet, over which no secret goes. With the certificate, connections are made as browsers make them.
"""

from __future__ import annotations

import hashlib
import hmac
import ssl
from collections.abc import Mapping
from contextlib import closing
from typing import Any
from urllib.parse import urlsplit

from loopline_shared.errors import LooplineError

CA_PATH = "/ca.pem"
WORKER_URI = "loopline://worker/"
"""Before the name of a worker, in its certificate."""
MAX_CERTIFICATE_BYTES = 16384
_WITHIN_S = 10.0
_KEY_AT = 6  # the place of the key among the fields of a certificate of version 3
_SEQUENCE = 0x30


def pin_of(certificate: str) -> str:
    """Return the SHA-256, in hex, of the public key in a certificate (PEM). Raises ValueError if it is none."""
    whole = ssl.PEM_cert_to_DER_cert(certificate)
    (content, *_) = _fields(whole)
    (signed, *_) = _fields(_content(content))
    return hashlib.sha256(_fields(_content(signed))[_KEY_AT]).hexdigest()


def trusting(ca: str, key_pair: tuple[str, str] | None = None) -> ssl.SSLContext:
    """Return a context that trusts this CA alone (PEM), by TLS 1.3. ``key_pair``: files of our certificate and key.

    Raises ValueError if the text is no certificate.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.load_verify_locations(cadata=ca)
    if key_pair:
        context.load_cert_chain(*key_pair)
    return context


def worker_named(certificate: Mapping[str, Any] | None) -> str:
    """Return the worker that a certificate, which has been verified, names; empty if it names none."""
    names = [str(value) for kind, value in (certificate or {}).get("subjectAltName", ()) if kind == "URI"]
    is_one = len(names) == 1 and names[0].startswith(WORKER_URI)
    return names[0].removeprefix(WORKER_URI) if is_one else ""


def fetch_ca(master: str, pin: str) -> str:
    """Return the certificate (PEM) of the master's CA, which has the key that the pin names. It blocks.

    ``master``: its address; behind commas, those of standbys, which show the same. Raises LooplineError if it shows
    another one, or none of them answers.
    """
    first, _, others = master.partition(",")
    try:
        return _fetch_known(first, pin)
    except LooplineError as error:
        if error.code != "unreachable" or not others:
            raise
        return fetch_ca(others, pin)


def _fetch_known(master: str, pin: str) -> str:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE  # the pin decides
    try:
        certificate = _fetch(master, context)
        is_it = hmac.compare_digest(pin_of(certificate), pin)
    except OSError as error:
        hint = "start one with `loopline master`, or ask its administrator for a new line"
        raise LooplineError("unreachable", f"no master answers at {master}: {error}", hint, 503) from error
    except (ValueError, IndexError):
        is_it = False
    if not is_it:
        message = f"{master} shows another certificate than expected"
        hint = "somebody may be in between: ask the master's administrator for a new line"
        raise LooplineError("wrong_master", message, hint)
    return certificate


def check_ca(master: str, ca: str) -> None:
    """Raises OSError or ValueError unless the master, at this very address, proves itself by this CA. It blocks."""
    if pin_of(_fetch(master, trusting(ca))) != pin_of(ca):
        raise ValueError("it names another CA")


def encrypted(url: str) -> str:
    """Return the address by https: where a CA is known, nothing is sent in the clear."""
    return f"https://{url.removeprefix('http://')}" if url.startswith("http://") else url


def _fetch(master: str, context: ssl.SSLContext) -> str:
    """Return the certificate of the CA that a master tells to all; empty if it has none. Raises OSError."""
    from http.client import HTTPException, HTTPSConnection  # large, and only at the beginning

    parts = urlsplit(encrypted(master))
    port = parts.port or (80 if master.startswith("http://") else 443)
    with closing(HTTPSConnection(parts.hostname or "", port, timeout=_WITHIN_S, context=context)) as connection:
        try:
            connection.request("GET", parts.path.rstrip("/") + CA_PATH)
            answer = connection.getresponse()
            text = answer.read(MAX_CERTIFICATE_BYTES).decode("ascii", errors="replace")
        except HTTPException as error:
            raise OSError(str(error) or "no HTTP") from None
    return text if answer.status == 200 else ""


def _fields(der: bytes) -> list[bytes]:
    """Return the elements that follow one another in DER, each with its header."""
    found, at = [], 0
    while at < len(der):
        end = _end(der, at)
        found.append(der[at:end])
        at = end
    return found


def _content(element: bytes) -> bytes:
    if element[:1] != bytes([_SEQUENCE]):
        raise ValueError("expected a certificate")
    return element[_start(element, 0) :]


def _start(der: bytes, at: int) -> int:
    """Return where the content of the element at this place begins."""
    return at + 2 + (der[at + 1] & 0x7F if der[at + 1] & 0x80 else 0)


def _end(der: bytes, at: int) -> int:
    start = _start(der, at)
    length = int.from_bytes(der[at + 2 : start]) if start > at + 2 else der[at + 1]
    if start + length > len(der):
        raise ValueError("expected a certificate")
    return start + length
