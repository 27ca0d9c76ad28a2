"""An encrypted grid: a man in the middle learns nothing."""

from __future__ import annotations

import asyncio
import datetime
import ssl
from collections.abc import Iterator
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from tests.faults.driver import Campaign, Fault, Feature

HANDSHAKE = 0x16
"""The first byte of a TLS handshake."""


class Impostor:
    """A server in the master's place that records all data sent to it."""

    def __init__(self, folder: Path) -> None:
        self.told = list[bytes]()
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(_certificate(folder / "impostor.pem"))

    async def start(self) -> None:
        self._with_tls = await asyncio.start_server(self._listen, "127.0.0.1", 0, ssl=self._context)
        self._plain = await asyncio.start_server(self._listen_plainly, "127.0.0.1", 0)
        self.ports = [server.sockets[0].getsockname()[1] for server in (self._with_tls, self._plain)]

    async def stop(self) -> None:
        self._with_tls.close()
        self._plain.close()

    async def _listen(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if said := await reader.read(1000):
            self.told.append(said)
        writer.close()

    async def _listen_plainly(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        said = await reader.read(1000)
        if said and said[0] != HANDSHAKE:
            self.told.append(said)
        writer.close()


def _certificate(file: Path) -> Path:
    """Write a self-signed certificate for this address, with its key."""
    key, now = ec.generate_private_key(ec.SECP256R1()), datetime.datetime.now(datetime.UTC)
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "Loopline")])
    names = x509.SubjectAlternativeName([x509.DNSName("localhost"), x509.DNSName("127.0.0.1")])
    made = x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
    made = made.not_valid_before(now).not_valid_after(now + datetime.timedelta(days=1)).add_extension(names, False)
    text = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    signed = made.sign(key, hashes.SHA256())
    file.write_bytes(text + signed.public_bytes(serialization.Encoding.PEM))
    return file


async def stand_between(campaign: Campaign, worker: str) -> None:
    """Answer a worker in the master's place, as an attacker on the network can: with another certificate or none."""
    impostor, cable = Impostor(campaign.folder), campaign.cables[worker][0]
    await impostor.start()
    try:
        cable.lead_to(campaign.chance.choice(impostor.ports))
        await asyncio.sleep(campaign.chance.choice((1.5, 4.5)))  # the fault lasts
    finally:
        cable.lead_to(campaign.ports[0])
        await impostor.stop()
    if impostor.told:
        campaign.found(f"{worker} told an impostor {impostor.told[0][:100]!r}")


def speaks_plainly(campaign: Campaign) -> Iterator[str]:
    """Yield workers that have connected to the master without TLS."""
    for name, (cable,) in campaign.cables.items():
        if cable.said_first - {HANDSHAKE}:
            yield f"{name} has spoken without TLS: it began with {sorted(map(chr, cable.said_first))}"


TLS = Feature(
    "tls",
    faults=(Fault("an impostor in the master's place", stand_between),),
    bugs={"any_certificate_will_do": "told an impostor"},
    master=("--tls", "on"),
    looks=speaks_plainly,
)
