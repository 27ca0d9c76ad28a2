"""Let the process at a socket run a module with these arguments, as `python -m` would: see warm.py.

It imports only modules that the interpreter has loaded already, to keep its start fast.
"""

import _signal
import _socket
import marshal
import os
import sys

_FORWARDED = (_signal.SIGTERM, _signal.SIGINT, _signal.SIGHUP)


def main(address: str, module: str, words: list[str]) -> int:
    """Return the exit code."""
    link = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
    link.connect(address)
    what = marshal.dumps((module, words, os.getcwd(), dict(os.environ)))  # noqa: PTH109
    streams = b"".join(number.to_bytes(4, sys.byteorder) for number in (0, 1, 2))
    link.sendmsg([len(what).to_bytes(4, "big")], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, streams)])
    link.sendall(what)
    process = _number(link)
    for signum in _FORWARDED:
        _signal.signal(signum, lambda signum, _: os.kill(process, signum))
    code = _number(link)
    if code < 0:
        _signal.signal(-code, _signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    return code


def _number(link: "_socket.socket") -> int:
    return int.from_bytes(link.recv(4, _socket.MSG_WAITALL), "big", signed=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2], sys.argv[3:]))
