"""Ranks of this machine alone, started without the launcher of MPI: no port is opened.

MPICH's launcher waits on a port of all addresses for helpers on other machines, and some signals
end it. What ranks ask a launcher for, they ask here by PMI-1: lines over a socket that each has
inherited, answered one by one.
"""

from __future__ import annotations

import errno
import os
import secrets
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress

from ...common.native import end_with_parent

# Seconds between two looks for ranks that have ended, and for what one has asked for last.
_TURN, _LAST = 0.1, 1.0
# How MPI reaches ranks of the same machine: neither through a network nor, for the most part,
# through /dev/shm, which is small in containers.
TRANSPORT = {"UCX_TLS": "self,sysv,cma"}


class Ranks:
    """Processes of one command, the ranks of a training; ``output``: their standard output."""

    def __init__(self, count: int, command: Sequence[str], output: int) -> None:
        self._all = threading.Barrier(count)
        self._known = {"PMI_process_mapping": f"(vector,(0,1,{count}))"}
        # MPI names what it shares by kvsname: not as what another training shares, or has left.
        self._fixed = {
            "init": "response_to_init rc=0 pmi_version=1 pmi_subversion=1",
            "get_maxes": "maxes rc=0 kvsname_max=256 keylen_max=64 vallen_max=1024",
            "get_appnum": "appnum rc=0 appnum=0",
            "get_my_kvsname": f"my_kvsname rc=0 kvsname=dnnstack_{secrets.token_hex(8)}",
            "put": "put_result rc=0",
            "barrier_in": "barrier_out rc=0",
            "finalize": "finalize_ack rc=0",
        }
        # Those that have left MPI with the others; and the statuses with which all are to end.
        self._left: set[int] = set()
        self._ends: list[int] = []
        self._ranks = [_started(number, count, command, output) for number in range(count)]

    def run(self, signals: Iterable[signal.Signals]) -> int:
        """Wait for all, and pass these signals on; returns the first status that is not 0.

        One that ends without having left MPI ends all others. Raises OSError.
        """
        for wanted in signals:
            # What is ignored here, as by nohup, is ignored by the ranks, which inherit that.
            if signal.getsignal(wanted) is not signal.SIG_IGN:
                signal.signal(wanted, lambda received, _: self._send(received))
        threads = [
            threading.Thread(target=self._serve, args=(number, own), daemon=True)
            for number, (_, own) in enumerate(self._ranks)
        ]
        try:
            for thread in threads:
                thread.start()
            while not self._ends and any(process.poll() is None for process, _ in self._ranks):
                time.sleep(_TURN)
                for number, (process, _) in enumerate(self._ranks):
                    if process.poll() and number not in self._left:
                        # A process that it has left behind may hold its socket, and say nothing.
                        threads[number].join(_LAST)
                        self._ends += [] if number in self._left else [_status(process)]
        except RuntimeError as error:
            raise OSError(errno.EAGAIN, str(error)) from None
        finally:
            self._all.abort()
            self._send(signal.SIGKILL)
            for process, own in self._ranks:
                process.wait()
                with suppress(OSError):
                    own.shutdown(socket.SHUT_RDWR)
                own.close()
        if self._ends:
            return self._ends[0]
        return next(filter(None, (_status(process) for process, _ in self._ranks)), 0)

    def _send(self, number: int) -> None:
        """Send a signal to each rank and to the process that watches over it."""
        for process, _ in self._ranks:
            if process.returncode is None:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, number)

    def _serve(self, number: int, own: socket.socket) -> None:
        """Answer what a rank asks, until it asks no more."""
        with suppress(OSError, threading.BrokenBarrierError), own.makefile("rb") as lines:
            for line in lines:
                asked = dict(word.partition("=")[::2] for word in line.decode().split())
                kind = asked.get("cmd", "")
                if kind == "abort":
                    self._ends.append(int(asked.get("exitcode", "1")))
                    return
                answer = self._fixed.get(kind, f"{kind}_result rc=1")
                if kind == "finalize":
                    self._left.add(number)
                elif kind == "barrier_in":
                    self._all.wait()
                elif kind == "put":
                    self._known[asked["key"]] = asked["value"]
                elif kind == "get" and asked["key"] in self._known:
                    answer = f"get_result rc=0 value={self._known[asked['key']]}"
                own.sendall(f"cmd={answer}\n".encode())


def _started(
    number: int, size: int, command: Sequence[str], output: int
) -> tuple[subprocess.Popen[bytes], socket.socket]:
    """A process, and the socket over which it asks."""
    own, theirs = socket.socketpair()
    told = {"PMI_FD": theirs.fileno(), "PMI_RANK": number, "PMI_SIZE": size}
    told |= {"MPI_LOCALRANKID": number, "MPI_LOCALNRANKS": size}
    with theirs:
        process = subprocess.Popen(
            command,
            env={**TRANSPORT, **os.environ, **{name: str(value) for name, value in told.items()}},
            stdin=subprocess.DEVNULL,
            stdout=output,
            pass_fds=(theirs.fileno(),),
            # A Ctrl-C reaches this process, which passes it on.
            start_new_session=True,
            preexec_fn=end_with_parent,
        )
    return process, own


def _status(process: subprocess.Popen[bytes]) -> int:
    """As a shell says it: 128 + n after signal n."""
    code = process.returncode or 0
    return code if code >= 0 else 128 - code
