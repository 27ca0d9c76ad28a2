"""A bucket of an object storage that speaks S3: Amazon's, or MinIO's, Ceph's and others' (docs/object-storage.md).

By botocore, the library under boto3 and aiobotocore: of the well-maintained clients, it is the one that signs headers
along with an address, so that a worker can upload exactly this content. Its calls block, and each is retried with
growing pauses, for about 15 s in all.

Credentials, region and endpoint come from the places that AWS's own programs use: the environment, ``~/.aws``, or the
computer's role.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import datetime
from secrets import token_hex
from typing import IO, Any
from urllib.parse import urlsplit

from loopline_shared.errors import LooplineError
from loopline_shared.rest.direct import DirectUpload

AWAY = "bucket_away"
TRIES = 6
_CONNECT_WITHIN_S, _SILENCE_S = 5, 30
URL_HOLDS_S = 900
"""Time after signing within which a direct transfer may begin."""
_PIECE_BYTES = 2**20
_THREADS = 32
_EXISTS = ("PreconditionFailed", "412")
_MISSING = ("NoSuchKey", "NotFound", "404")


@dataclass(frozen=True, slots=True)
class StoredObject:
    """An object of the bucket: its key, its size, and when it was last written, as a time of Unix."""

    key: str
    size_bytes: int
    written_at: float


class Bucket:
    """A bucket, or its objects with a prefix. Errors are LooplineErrors with status 503.

    Their code is AWAY if the fault passes by itself: the service does not answer, or is temporarily unable to.
    """

    def __init__(self, url: str) -> None:
        """``url``: ``s3://bucket/prefix``. Raises LooplineError if the library is missing, or there is no region."""
        parts = urlsplit(url)
        self.url = url
        self._bucket, prefix = parts.netloc, parts.path.strip("/")
        self._prefix = f"{prefix}/" if prefix else ""
        self._client = _client(url)

    def check(self) -> bool:
        """Write, read and remove an object. Raises LooplineError with the next step if that fails.

        Returns True if the service refuses content that has another SHA-256 than announced, and never replaces an
        object that is there: then others than the master may be trusted to write.
        """
        key, content = f"check-{token_hex(8)}", token_hex(16).encode()
        sha256 = hashlib.sha256(content).hexdigest()
        try:
            is_kept = self._put(key, content, sha256) and not self._put(key, content, sha256)
            if self._get(key).read() != content:
                raise self._error("what was written to it is not what was read", "look at the service behind it")
            is_checked = not self._takes(f"{key}-wrong", content, hashlib.sha256(key.encode()).hexdigest())
            return is_kept and is_checked
        finally:
            self.delete(key)

    def size(self, key: str) -> StoredObject | None:
        """Return what is known of an object; None if there is none."""
        with self._telling():
            try:
                found = self._client.head_object(Bucket=self._bucket, Key=self._prefix + key)
            except self._client.exceptions.ClientError as error:
                if _code(error) in _MISSING:
                    return None
                raise
        return StoredObject(key, found["ContentLength"], found["LastModified"].timestamp())

    def put(self, key: str, content: IO[bytes], sha256: str) -> None:
        """Write an object unless it is there; the service holds it against its hash, if it can."""
        self._put(key, content, sha256)

    def get(self, key: str) -> Iterator[bytes]:
        """Generate the content of an object, piece by piece."""
        with self._telling(), closing(self._get(key)) as body:
            yield from body.iter_chunks(_PIECE_BYTES)

    def touch(self, key: str) -> None:
        """Have an object written now, by copying it onto itself."""
        place = {"Bucket": self._bucket, "Key": self._prefix + key}
        with self._telling():
            self._client.copy_object(**place, CopySource=place, MetadataDirective="REPLACE")

    def delete(self, key: str) -> None:
        """Remove an object, if it is there."""
        with self._telling():
            self._client.delete_object(Bucket=self._bucket, Key=self._prefix + key)

    def list(self) -> Iterator[list[StoredObject]]:
        """Generate all objects, up to a thousand at a time."""
        with self._telling():
            pages = self._client.get_paginator("list_objects_v2")
            for page in pages.paginate(Bucket=self._bucket, Prefix=self._prefix):
                yield [
                    StoredObject(found["Key"].removeprefix(self._prefix), found["Size"], _time(found["LastModified"]))
                    for found in page.get("Contents", ())
                ]

    def holds_some(self) -> bool:
        """Return True if there is any object."""
        return any(self.list())

    def url_to_get(self, key: str) -> str:
        """Return an address that serves the object for a while."""
        return self._signed("get_object", Key=self._prefix + key)

    def url_to_put(self, key: str, sha256: str, size_bytes: int) -> DirectUpload:
        """Return where content of this hash and size, and no other, can be sent for a while."""
        checksum = _checksum(sha256)
        url = self._signed(
            "put_object",
            Key=self._prefix + key,
            IfNoneMatch="*",
            ChecksumSHA256=checksum,
            ContentLength=size_bytes,
        )
        return DirectUpload(url, {"If-None-Match": "*", "x-amz-checksum-sha256": checksum})

    def _signed(self, operation: str, **parameters: object) -> str:
        with self._telling():
            url: str = self._client.generate_presigned_url(
                operation, Params={"Bucket": self._bucket, **parameters}, ExpiresIn=URL_HOLDS_S
            )
        return url

    def _put(self, key: str, content: IO[bytes] | bytes, sha256: str) -> bool:
        """Return False if there was such an object."""
        with self._telling():
            try:
                self._client.put_object(
                    Bucket=self._bucket,
                    Key=self._prefix + key,
                    Body=content,
                    IfNoneMatch="*",
                    ChecksumSHA256=_checksum(sha256),
                )
            except self._client.exceptions.ClientError as error:
                if _code(error) not in _EXISTS:
                    raise
                return False
        return True

    def _takes(self, key: str, content: bytes, sha256: str) -> bool:
        """Return True if the service takes content with the hash of another one."""
        try:
            self._client.put_object(
                Bucket=self._bucket, Key=self._prefix + key, Body=content, ChecksumSHA256=_checksum(sha256)
            )
        except self._client.exceptions.ClientError as error:
            if _status(error) >= 500:
                raise self._error(str(error), _LOOK, AWAY) from None
            return False
        self.delete(key)
        return True

    def _get(self, key: str) -> Any:
        with self._telling():
            return self._client.get_object(Bucket=self._bucket, Key=self._prefix + key)["Body"]

    @contextmanager
    def _telling(self) -> Iterator[None]:
        """Turn the library's errors into errors that users understand."""
        from botocore import exceptions as of

        try:
            yield
        except of.NoCredentialsError:
            hint = "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY of the master, or give its computer a role"
            raise self._error("there are no credentials for it", hint) from None
        except of.ClientError as error:
            code = AWAY if _status(error) >= 500 else "bucket"
            raise self._error(str(error), _HINTS.get(_code(error), _LOOK), code) from None
        except (of.SSLError, of.ProxyConnectionError) as error:
            raise self._error(str(error), _LOOK) from None
        except (of.ConnectionError, of.HTTPClientError, OSError) as error:
            raise self._error(str(error), _LOOK, AWAY) from None
        except of.BotoCoreError as error:
            raise self._error(str(error), _LOOK) from None

    def _error(self, message: str, hint: str, code: str = "bucket") -> LooplineError:
        return LooplineError(code, f"the bucket {self.url} cannot be used: {message}", hint, status=503)


_LOOK = "look whether its service runs, and at AWS_ENDPOINT_URL_S3 if it is not Amazon's"
_HINTS = {
    "NoSuchBucket": "make the bucket, or correct the setting `files`",
    "AccessDenied": "these credentials need s3:GetObject, PutObject, DeleteObject and ListBucket there",
    "InvalidAccessKeyId": "correct the credentials of the master",
    "SignatureDoesNotMatch": "correct the credentials of the master",
}


def _client(url: str) -> Any:
    """Return a client: buckets are parts of the path except at Amazon's, for other hosts have no names for them."""
    try:
        import botocore.session
        from botocore.config import Config
        from botocore.exceptions import BotoCoreError
    except ModuleNotFoundError:
        message = f"files in {url} need a library that is not installed"
        raise LooplineError("bucket", message, "pip install 'loopline[s3]' where the master runs") from None
    config = Config(
        signature_version="s3v4",
        connect_timeout=_CONNECT_WITHIN_S,
        read_timeout=_SILENCE_S,
        retries={"mode": "standard", "total_max_attempts": TRIES},
        max_pool_connections=_THREADS,
        request_checksum_calculation="when_required",
        response_checksum_validation="when_required",
    )
    session = botocore.session.get_session()
    try:
        client = session.create_client("s3", config=config)
        if "amazonaws" in client.meta.endpoint_url:
            return client
        return session.create_client("s3", config=config.merge(Config(s3={"addressing_style": "path"})))
    except (BotoCoreError, ValueError) as error:
        hint = "set AWS_DEFAULT_REGION, and AWS_ENDPOINT_URL_S3 if it is not Amazon's"
        raise LooplineError("bucket", f"files in {url}: {error}", hint) from None


def _status(error: Any) -> int:
    status: int = error.response["ResponseMetadata"]["HTTPStatusCode"]
    return status


def _code(error: Any) -> str:
    code: str = error.response.get("Error", {}).get("Code", "")
    return code


def _checksum(sha256: str) -> str:
    return base64.b64encode(bytes.fromhex(sha256)).decode()


def _time(at: datetime) -> float:
    return at.timestamp()
