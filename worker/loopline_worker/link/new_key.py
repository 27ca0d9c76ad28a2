"""Make a worker's key and the request for its certificate: ``python -m loopline_worker.link.new_key KEY REQUEST``.

A program of its own, run once in a worker's life: the agent itself never loads the library.
"""

from __future__ import annotations

import sys
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from loopline_shared.disk.durable_files import replace_file


def main(key_file: Path, request_file: Path) -> None:
    """Write both, the request last: where it is there, so is the key, also after a power cut."""
    key = ec.generate_private_key(ec.SECP256R1())
    form, encoding = serialization.PrivateFormat.PKCS8, serialization.Encoding.PEM
    secret = key.private_bytes(encoding, form, serialization.NoEncryption())
    replace_file(key_file, secret)
    request = x509.CertificateSigningRequestBuilder().subject_name(x509.Name([])).sign(key, hashes.SHA256())
    replace_file(request_file, request.public_bytes(encoding))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
