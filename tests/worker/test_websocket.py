"""The worker's WebSocket client against aiohttp's server."""

import asyncio
import base64
import hashlib
import shutil
import socket
import ssl
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest
from aiohttp import web

from loopline_shared.errors import ProtocolError
from loopline_shared.rest.trust import trusting
from loopline_worker.link.upgrade import RejectedError
from loopline_worker.link.websocket import LostError, WebSocket

Talk = Callable[[web.WebSocketResponse], Awaitable[None]]
LIMIT_BYTES = 300_000


async def echo(socket: web.WebSocketResponse) -> None:
    async for message in socket:
        await (socket.send_str if isinstance(message.data, str) else socket.send_bytes)(message.data)


class Server:
    def __init__(self) -> None:
        self.talk: Talk = echo
        self.headers: list[str | None] = []
        self.port = 0
        self._runner: web.AppRunner | None = None

    async def start(self, context: ssl.SSLContext | None = None) -> None:
        app = web.Application()
        app.router.add_get("/api/link", self._link)
        self._runner = web.AppRunner(app, shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0, ssl_context=context).start()
        self.port = self._runner.addresses[0][1]

    async def stop(self) -> None:
        if self._runner:
            await self._runner.cleanup()

    async def _link(self, request: web.Request) -> web.WebSocketResponse:
        self.headers.append(request.headers.get("Authorization"))
        socket = web.WebSocketResponse(compress=False, max_msg_size=2**26)
        await socket.prepare(request)
        await self.talk(socket)
        return socket

    async def connect(self, path: str = "/api/link", context: ssl.SSLContext | None = None) -> WebSocket:
        scheme = "https" if context else "http"
        url = f"{scheme}://127.0.0.1:{self.port}{path}"
        return await WebSocket.connect(url, lambda: {"Authorization": "Bearer x"}, LIMIT_BYTES, context)


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    server = Server()
    yield server
    await server.stop()


def frames_of(socket: WebSocket) -> asyncio.Queue[bytes]:
    frames: asyncio.Queue[bytes] = asyncio.Queue()
    socket.on_frame = frames.put_nowait
    return frames


@pytest.mark.parametrize("size_bytes", [0, 1, 125, 126, 65_535, 65_536, LIMIT_BYTES])
async def test_messages_of_any_length_are_sent_and_received(server: Server, size_bytes: int) -> None:
    await server.start()
    socket = await server.connect()
    frames = frames_of(socket)
    content = (b"ab\x00" * LIMIT_BYTES)[:size_bytes]
    for _ in range(2):
        socket.send(content)
        assert await asyncio.wait_for(frames.get(), 60) == content
    assert server.headers == ["Bearer x"]
    await socket.close(1)


async def test_oversized_message_closes_the_link(server: Server) -> None:
    await server.start()
    socket = await server.connect()
    socket.send(bytes(LIMIT_BYTES + 1))
    with pytest.raises(ProtocolError, match="more than 300,000 bytes"):
        await socket.ended()


async def test_ping_is_answered_and_close_reason_is_reported(server: Server) -> None:
    async def ping_and_leave(socket: web.WebSocketResponse) -> None:
        await socket.ping(b"there?")
        await socket.send_bytes(b"pinged")
        message = await socket._reader.read() if socket._reader else None  # the pong, which aiohttp does not pass on
        assert message
        assert message.data == b"there?"
        await socket.close(code=1001, message=b"restarting")

    server.talk = ping_and_leave
    await server.start()
    socket = await server.connect()
    with pytest.raises(LostError, match="the master closed the link \\(restarting\\)"):
        await asyncio.wait_for(socket.ended(), 60)


async def test_server_without_a_websocket_is_recognized(server: Server) -> None:
    await server.start()
    with pytest.raises(RejectedError) as rejected:
        await server.connect("/elsewhere")
    assert rejected.value.status == 404

    def babble(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"SSH-2.0-OpenSSH_9.2\r\n\r\n")

    async with await asyncio.start_server(babble, "127.0.0.1", 0) as other:
        server.port = other.sockets[0].getsockname()[1]
        with pytest.raises(LostError, match="speaks no WebSocket"):
            await server.connect()


ANSWER = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: WebSocket\r\nConnection: Upgrade\r\n"


@pytest.mark.parametrize(
    ("answer", "complaint"),
    [
        (ANSWER + "Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n", "answered another request"),
        (ANSWER.replace("Upgrade: WebSocket", "Accept: x") + "Sec-WebSocket-Accept: {}\r\n\r\n", "another request"),
        (ANSWER + "Sec-WebSocket-Accept: {}\r\nSec-WebSocket-Extensions: x\r\n\r\n", "not offered"),
        ("HTTP/1.1 1O1 Switching\r\n\r\n", "it answered 'HTTP/1.1 1O1"),
        (ANSWER + "x" * 2**16, "does not end"),
    ],
)
async def test_invalid_upgrade_response_is_refused(answer: str, complaint: str) -> None:
    async def open_wrongly(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        request = (await reader.readuntil(b"\r\n\r\n")).decode()
        key = next(line for line in request.splitlines() if line.startswith("Sec-WebSocket-Key: "))[19:]
        accepted = base64.b64encode(hashlib.sha1((key + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11").encode()).digest())
        writer.write(answer.replace("{}", accepted.decode()).encode())
        await writer.drain()

    async with await asyncio.start_server(open_wrongly, "127.0.0.1", 0) as other:
        url = f"http://127.0.0.1:{other.sockets[0].getsockname()[1]}/api/link"
        with pytest.raises(LostError, match=f"speaks no WebSocket: .*{complaint}"):
            await asyncio.wait_for(WebSocket.connect(url, dict, LIMIT_BYTES), 60)


async def test_header_with_a_line_break_is_refused(server: Server) -> None:
    await server.start()
    with pytest.raises(LostError, match="line break"):
        await WebSocket.connect(f"http://127.0.0.1:{server.port}/", lambda: {"x": "y\r\nz: 1"}, LIMIT_BYTES)


async def test_connect_does_not_wait_for_a_silent_address(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    await server.start()
    loop, silent = asyncio.get_running_loop(), ("127.0.0.2", server.port)
    connect = loop.sock_connect

    async def resolve(host: str, port: int, **_: object) -> list[object]:
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (host, port)) for host in (silent[0], "127.0.0.1")]

    async def reach(sock: socket.socket, address: tuple[str, int]) -> None:
        await (asyncio.Event().wait() if address == silent else connect(sock, address))

    monkeypatch.setattr(loop, "getaddrinfo", resolve)
    monkeypatch.setattr(loop, "sock_connect", reach)
    link = await asyncio.wait_for(
        WebSocket.connect(f"http://master.example:{server.port}/api/link", dict, LIMIT_BYTES), 60
    )
    link.drop()


async def test_headers_are_computed_after_connecting(server: Server) -> None:
    await server.start()
    asked: list[str] = []
    await server.stop()
    with pytest.raises(OSError, match="Connect call failed"):
        await WebSocket.connect(
            f"http://127.0.0.1:{server.port}/", lambda: {"x": asked.append("x") or ""}, LIMIT_BYTES
        )
    assert not asked


async def test_exception_of_the_listener_ends_the_link_and_is_raised(server: Server) -> None:
    await server.start()
    socket = await server.connect()

    def stumble(frame: bytes) -> None:
        raise ZeroDivisionError

    socket.on_frame = stumble
    socket.send(b"x")
    with pytest.raises(ZeroDivisionError):
        await socket.ended()


@pytest.mark.skipif(not shutil.which("openssl"), reason="no openssl to make a certificate with")
async def test_only_the_given_ca_is_accepted(server: Server, tmp_path: Path) -> None:
    certificate, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    command = ["openssl", "req", "-x509", "-nodes", "-days", "1", "-subj", "/CN=lab-pc"]
    command += ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-addext", "subjectAltName=IP:127.0.0.1"]
    subprocess.run([*command, "-keyout", key, "-out", certificate], check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    await server.start(context)
    trust = trusting(certificate.read_text())
    socket = await server.connect(context=trust)
    frames = frames_of(socket)
    socket.send(b"hello")
    assert await asyncio.wait_for(frames.get(), 60) == b"hello"
    await socket.close(1)
    with pytest.raises(ssl.SSLCertVerificationError):
        await server.connect(context=ssl.create_default_context())
    assert server.headers == ["Bearer x"], "the token was not sent to another server"
