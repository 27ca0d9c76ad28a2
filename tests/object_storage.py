"""An S3 service over HTTP: moto behind a filter that refuses some requests and checks hashes like S3."""

from __future__ import annotations

import base64
import hashlib
import io
import random
import threading
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

BUCKET = "grid"
_BAD_DIGEST = b"<Error><Code>BadDigest</Code><Message>another SHA-256</Message></Error>"
_SLOW_DOWN = b"<Error><Code>SlowDown</Code><Message>come again</Message></Error>"


class ObjectStorage:
    """The service. ``refused``: the share of requests answered with 503, drawn by ``seed``."""

    def __init__(self, *, checks: bool = True, seed: int = 0) -> None:
        from moto.server import DomainDispatcherApplication, create_backend_app

        self.refused, self.checks = 0.0, checks
        self.refusals = 0
        self.bytes = Counter[str]()  # bytes sent or received, by client: "master" or "others"
        self._random = random.Random(seed)
        self._moto = DomainDispatcherApplication(create_backend_app)

    @property
    def environment(self) -> dict[str, str]:
        return {
            "AWS_ACCESS_KEY_ID": "test",
            "AWS_SECRET_ACCESS_KEY": "test",
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_ENDPOINT_URL_S3": self.url,
        }

    @contextmanager
    def serving(self, port: int = 0) -> Iterator[ObjectStorage]:
        from werkzeug.serving import WSGIRequestHandler, make_server

        class Silent(WSGIRequestHandler):
            def log(self, *_: object) -> None:
                pass

        server = make_server("127.0.0.1", port, self, threaded=True, request_handler=Silent)
        self.port = server.server_port
        self.url = f"http://127.0.0.1:{self.port}"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            self._make_bucket()
            yield self
        finally:
            server.shutdown()
            thread.join()
            server.server_close()

    def _make_bucket(self) -> None:
        import urllib.request

        urllib.request.urlopen(urllib.request.Request(f"{self.url}/{BUCKET}", method="PUT")).close()

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
        environ["wsgi.input"] = io.BytesIO(body)
        if self._random.random() < self.refused:
            self.refusals += 1
            return _answered("503 Slow Down", _SLOW_DOWN, start_response)
        expected = environ.get("HTTP_X_AMZ_CHECKSUM_SHA256")
        if self.checks and expected and base64.b64encode(hashlib.sha256(body).digest()).decode() != expected:
            return _answered("400 Bad Request", _BAD_DIGEST, start_response)
        answer = list(self._moto(environ, start_response))
        who = "master" if "Botocore" in environ.get("HTTP_USER_AGENT", "") else "others"
        self.bytes[who] += len(body) + sum(map(len, answer))
        return answer


def _answered(status: str, body: bytes, start_response: Any) -> list[bytes]:
    start_response(status, [("Content-Type", "application/xml"), ("Content-Length", str(len(body)))])
    return [body]
