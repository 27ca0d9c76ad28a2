"""Files come over sockets that block: they, too, believe only the certificate that was named."""

import hashlib
import shutil
import socket
import ssl
import subprocess
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from loopline_worker.link import tls


@pytest.fixture
def server(tmp_path: Path) -> Iterator[tuple[int, bytes]]:
    """Its port, and the SHA-256 of its certificate. It says hello to whoever stays."""
    certificate, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj", "/CN=lab-pc"]
    subprocess.run([*command, "-keyout", key, "-out", certificate], check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            with suppress(OSError):
                while True:
                    link = listening.accept()[0]
                    with suppress(OSError), context.wrap_socket(link, server_side=True) as secured:
                        secured.sendall(b"hello")

        threading.Thread(target=serve, daemon=True).start()
        der = ssl.PEM_cert_to_DER_cert(certificate.read_text())
        yield listening.getsockname()[1], hashlib.sha256(der).digest()
        listening.shutdown(socket.SHUT_RDWR)


@pytest.mark.skipif(not shutil.which("openssl"), reason="no openssl to make a certificate with")
def test_only_the_certificate_that_was_named_is_believed(server: tuple[int, bytes]) -> None:
    port, sha256 = server
    with tls.pinned(sha256).wrap_socket(socket.create_connection(("127.0.0.1", port))) as link:
        assert link.recv(5) == b"hello"
    with (
        socket.create_connection(("127.0.0.1", port)) as plain,
        pytest.raises(ssl.SSLCertVerificationError, match="not the one"),
    ):
        tls.pinned(bytes(32)).wrap_socket(plain)
