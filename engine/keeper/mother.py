"""The mother of all keepers: a fork server with nothing loaded but the keeper.

Forking a small process takes a millisecond, starting an interpreter twenty. Run as a program:
`mother.py SOCKET_FD SOCKETS_DIR NOFILE`. A message on the socket, one byte with one descriptor
(the engine's end of a new keeper's control link is its peer), forks a keeper: `k` for jobs, `p`
for a Python session. Where that fails, the reason is written to the descriptor. NOFILE is the soft
limit that the user had. When the engine closes the socket, mother ends; the keepers stay.
"""

from __future__ import annotations

import array
import gc
import json
import os
import resource
import signal
import socket
import sys
from typing import Final

if __name__ == "__main__":
    # Isolated mode, for nothing of the user's environment may load here, knows no path to us.
    sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))

from engine.keeper import keeper, python_keeper, shell
from engine.keeper.linux import set_process_name
from engine.keeper.saying import say_exception

KEEPER_NOFILE: Final = 256  # descriptors that a keeper may have, where the user has fewer


SESSION: Final = b"p"  # asks for the keeper of a Python session; any other byte for one of jobs


def receive_control(requests: socket.socket) -> tuple[bytes, socket.socket] | None:
    """The kind of a new keeper and its control end; None when the engine is gone."""
    data, ancillary, _flags, _address = requests.recvmsg(
        16, socket.CMSG_SPACE(4), socket.MSG_CMSG_CLOEXEC
    )
    if not data:
        return None
    received = array.array("i")
    received.frombytes(ancillary[0][2][:4])
    return data[:1], socket.socket(socket.AF_UNIX, socket.SOCK_STREAM, fileno=received[0])


def bear(requests: socket.socket, kind: bytes, control: socket.socket, sockets: str) -> None:
    """Fork one keeper with `control`."""
    try:
        pid = os.fork()
    except OSError as exc:
        message = f"no process for a keeper: {exc.strerror}"
        answer = {"ev": "refused", "message": message, "errno": exc.errno}
        control.send(json.dumps(answer).encode() + b"\n")
        return
    if pid:
        return
    status = 1
    try:
        requests.close()
        keep = python_keeper.keep if kind == SESSION else keeper.keep
        keep(control, sockets)
        status = 0
    except BaseException:
        say_exception()
    finally:
        os._exit(status)


def limit_descriptors(wanted: int) -> None:
    """Set the soft limit to `wanted`, or to what a keeper needs if that is more."""
    _soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    least = KEEPER_NOFILE if hard == resource.RLIM_INFINITY else min(KEEPER_NOFILE, hard)
    soft = wanted if wanted == resource.RLIM_INFINITY else max(wanted, least)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def take_requests(fd: int) -> socket.socket:
    """The engine's socket under the lowest number: `fd`, the engine's, may be one of `shell`."""
    requests = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM, fileno=os.dup(fd))
    os.close(fd)
    return requests


def reserve_descriptors() -> None:
    """Take the numbers at which shells look, before anything else gets one of them."""
    nothing = os.open("/dev/null", os.O_RDONLY | os.O_CLOEXEC)
    for number in shell.ALL_FDS:
        os.dup2(nothing, number, inheritable=False)
    os.close(nothing)


def main() -> None:
    """Serve until the engine closes its end."""
    request_fd, sockets, nofile = int(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    os.setsid()
    os.chdir("/")
    os.umask(0o077)
    limit_descriptors(nofile)
    # The kernel takes dead keepers away: nobody asks for their status.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    set_process_name("engine-mother")
    requests = take_requests(request_fd)
    reserve_descriptors()
    shell.open_scripts()
    gc.collect()
    gc.freeze()  # what is loaded stays shared with the keepers
    while (asked := receive_control(requests)) is not None:
        kind, control = asked
        bear(requests, kind, control, sockets)
        control.close()


if __name__ == "__main__":
    main()
