"""The certificate authority (CA) of one grid: a key in the data folder, and the certificates that it signs.

The CA lives for twenty years, which outlives the grid. The master's certificate lives for weeks and is renewed by
itself: a stolen one is useful only briefly.
"""

from __future__ import annotations

import datetime
import ipaddress
from collections.abc import Sequence
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from loopline_master.files.private_files import read_private, write_private
from loopline_shared.errors import LooplineError

_CA_DAYS = 20 * 366
_SERVER_DAYS = 90
_WORKER_DAYS = 90
_CLOCKS_DIFFER = datetime.timedelta(hours=24)
"""A certificate is valid from before it was made: clocks of desktops are wrong."""
_CLOCKS_ARE_AHEAD = datetime.timedelta(days=2 * 366)
"""Of the CA, which is made once: the master's own clock may be wrong just then."""
Issued = tuple[str, str]
"""A certificate, and its CA's behind it, in PEM; and the private key, likewise."""


class Authority:
    """The CA in a folder, made there if there is none. Raises LooplineError if it cannot be kept."""

    def __init__(self, folder: Path) -> None:
        key_file, file = folder / "ca.key", folder / "ca.pem"
        if not key_file.exists() and file.exists():
            hint = "restore it from a backup; without it (move ca.pem away), every computer has to join again"
            raise LooplineError("certificates", f"the key of the CA is missing: {key_file}", hint)
        if not read_private(key_file):
            key = ec.generate_private_key(ec.SECP256R1())
            write_private(key_file, _key_text(key))
            write_private(file, _self_signed(key))
        try:
            loaded = serialization.load_pem_private_key(read_private(key_file).encode(), None)
            self._certificate = x509.load_pem_x509_certificate(read_private(file).encode())
            assert isinstance(loaded, ec.EllipticCurvePrivateKey)
            self._key = loaded
        except (ValueError, AssertionError, UnsupportedAlgorithm) as error:
            hint = "restore the folder from a backup; without it, every computer has to join again"
            raise LooplineError("certificates", f"cannot read the CA in {folder}: {error}", hint) from None
        self.certificate = _text(self._certificate)

    def serve_as(self, names: Sequence[str]) -> Issued:
        """Return a new certificate of the master, for these host names and addresses, and its key."""
        key = ec.generate_private_key(ec.SECP256R1())
        uses = [ExtendedKeyUsageOID.SERVER_AUTH]
        signed = self._sign(key.public_key(), [_name(name) for name in names], uses, _SERVER_DAYS)
        return signed + self.certificate, _key_text(key)

    def certify(self, request: str, uri: str) -> str:
        """Return a new certificate for the key of a worker that asks (PEM).

        Workers show it to the master and to one another. Raises LooplineError if the request is none.
        """
        try:
            asked = x509.load_pem_x509_csr(request.encode())
            key = asked.public_key()
            assert asked.is_signature_valid
            assert isinstance(key, ec.EllipticCurvePublicKey)
        except (ValueError, AssertionError, UnsupportedAlgorithm):
            raise LooplineError("certificates", "this is no request for a certificate") from None
        uses = [ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.SERVER_AUTH]
        return self._sign(key, [x509.UniformResourceIdentifier(uri)], uses, _WORKER_DAYS)

    def _sign(
        self,
        key: ec.EllipticCurvePublicKey,
        names: Sequence[x509.GeneralName],
        uses: Sequence[x509.ObjectIdentifier],
        days: int,
    ) -> str:
        builder = _builder(key, "Loopline", self._certificate.subject, days)
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        builder = builder.add_extension(x509.ExtendedKeyUsage(uses), critical=False)
        builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        authority = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        builder = builder.add_extension(authority, critical=False)
        return _text(builder.sign(self._key, hashes.SHA256()))


def is_for(certificate: str, names: Sequence[str]) -> bool:
    """True if the certificate (PEM) is for exactly these names and has a third of its time left at least."""
    try:
        read = x509.load_pem_x509_certificate(certificate.encode())
        found = read.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (ValueError, x509.ExtensionNotFound):
        return False
    life = read.not_valid_after_utc - read.not_valid_before_utc
    is_fresh = read.not_valid_before_utc <= _now() < read.not_valid_after_utc - life / 3  # else a clock was ahead
    return is_fresh and set(found) == {_name(name) for name in names}


def ends_at(certificate: str) -> float:
    """Return when the certificate (PEM) expires."""
    return x509.load_pem_x509_certificate(certificate.encode()).not_valid_after_utc.timestamp()


def _self_signed(key: ec.EllipticCurvePrivateKey) -> str:
    """Return the CA's own certificate. Its name has a part of its own: a browser may know several grids."""
    digest = hashes.Hash(hashes.SHA256())
    digest.update(key.public_key().public_bytes(serialization.Encoding.DER, _SPKI))
    name = f"Loopline CA {digest.finalize().hex()[:8]}"
    builder = _builder(key.public_key(), name, _subject(name), _CA_DAYS, before=_CLOCKS_ARE_AHEAD)
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    builder = builder.add_extension(_MAY_SIGN, critical=True)
    identifier = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
    builder = builder.add_extension(identifier, critical=False)
    return _text(builder.sign(key, hashes.SHA256()))


_SPKI = serialization.PublicFormat.SubjectPublicKeyInfo
_MAY_SIGN = x509.KeyUsage(
    digital_signature=False, content_commitment=False, key_encipherment=False, data_encipherment=False,
    key_agreement=False, key_cert_sign=True, crl_sign=True, encipher_only=False, decipher_only=False,
)  # fmt: skip


def _builder(
    key: ec.EllipticCurvePublicKey,
    name: str,
    issuer: x509.Name,
    days: int,
    *,
    before: datetime.timedelta = _CLOCKS_DIFFER,
) -> x509.CertificateBuilder:
    builder = x509.CertificateBuilder().subject_name(_subject(name)).issuer_name(issuer).public_key(key)
    builder = builder.serial_number(x509.random_serial_number()).not_valid_before(_now() - before)
    return builder.not_valid_after(_now() + datetime.timedelta(days=days))


def _subject(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _text(certificate: x509.Certificate) -> str:
    return certificate.public_bytes(serialization.Encoding.PEM).decode("ascii")


def _key_text(key: ec.EllipticCurvePrivateKey) -> str:
    form = serialization.PrivateFormat.PKCS8
    return key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption()).decode("ascii")


def _now() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC)
