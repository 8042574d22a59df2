"""Ranks of this machine alone, started without the launcher of MPI: no port is opened.

MPICH's launcher waits on a port of all addresses for helpers on other machines, and some signals
end it. What ranks ask a launcher for, they ask here by PMI-1: lines over a socket that each has
inherited, answered one by one.
"""

from __future__ import annotations

import os
import secrets
import selectors
import signal
import socket
import subprocess
from collections.abc import Iterable, Sequence
from contextlib import suppress

from ...common.native import end_with_parent

# Seconds between two looks for signals and ranks that have ended.
_TURN = 0.1
# How MPI reaches ranks of the same machine: neither through a network nor, for the most part,
# through /dev/shm, which is small in containers.
TRANSPORT = {"UCX_TLS": "self,sysv,cma"}
# What is answered to questions that need no more.
_FIXED = {
    "init": "response_to_init rc=0 pmi_version=1 pmi_subversion=1",
    "get_maxes": "maxes rc=0 kvsname_max=256 keylen_max=64 vallen_max=1024",
    "get_appnum": "appnum rc=0 appnum=0",
    "finalize": "finalize_ack rc=0",
}


class _Rank:
    """A process, and the socket over which it asks; ``left``: it has left MPI with the others."""

    def __init__(self, number: int, size: int, command: Sequence[str], output: int) -> None:
        self.unread, self.left = b"", False
        self.socket, theirs = socket.socketpair()
        told = {
            "PMI_FD": theirs.fileno(),
            "PMI_RANK": number,
            "PMI_SIZE": size,
            "MPI_LOCALRANKID": number,
            "MPI_LOCALNRANKS": size,
        }
        with theirs:
            self.process = subprocess.Popen(
                command,
                env={**TRANSPORT, **os.environ, **{name: str(told[name]) for name in told}},
                stdin=subprocess.DEVNULL,
                stdout=output,
                pass_fds=(theirs.fileno(),),
                # A Ctrl-C reaches this process, which passes it on.
                start_new_session=True,
                preexec_fn=end_with_parent,
            )

    def say(self, text: str) -> None:
        with suppress(OSError):
            self.socket.sendall(f"cmd={text}\n".encode())

    def signal(self, number: int) -> None:
        """Send a signal to the rank and to the process that watches over it."""
        if self.process.returncode is None:
            with suppress(ProcessLookupError):
                os.killpg(self.process.pid, number)


class _Aborted(Exception):
    """A rank asks for the end of all, with this status."""


class Ranks:
    """Processes of one command, the ranks of a training; ``output``: their standard output."""

    def __init__(self, count: int, command: Sequence[str], output: int) -> None:
        self._ranks = [_Rank(number, count, command, output) for number in range(count)]
        self._waiting = 0
        # MPI names what it shares by it, which must not be what another training shares or left.
        self._name = f"dnnstack_{secrets.token_hex(8)}"
        self._known = {"PMI_process_mapping": f"(vector,(0,1,{count}))"}

    def run(self, signals: Iterable[signal.Signals]) -> int:
        """Wait for all, and pass these signals on; returns the first status that is not 0.

        One that ends without having left MPI ends all others.
        """
        asked: list[int] = []
        for wanted in signals:
            # What is ignored here, as by nohup, is ignored by the ranks, which inherit that.
            if signal.getsignal(wanted) is not signal.SIG_IGN:
                signal.signal(wanted, lambda received, _: asked.append(received))
        try:
            with selectors.DefaultSelector() as selector:
                for rank in self._ranks:
                    selector.register(rank.socket, selectors.EVENT_READ, rank)
                while any(rank.process.returncode is None for rank in self._ranks):
                    for key, _ in selector.select(_TURN):
                        if not self._hear(key.data):
                            selector.unregister(key.fileobj)
                    while asked:
                        number = asked.pop(0)
                        for rank in self._ranks:
                            rank.signal(number)
                    self._look()
        except _Aborted as error:
            return int(str(error))
        finally:
            for rank in self._ranks:
                rank.signal(signal.SIGKILL)
                rank.process.wait()
                rank.socket.close()
        return next(filter(None, (_status(rank.process) for rank in self._ranks)), 0)

    def _look(self) -> None:
        """Raise _Aborted if a rank has ended with an error that concerns the others."""
        for rank in self._ranks:
            if rank.process.poll() and not rank.left:
                # What it has asked for last counts, such as an end with another status.
                self._hear(rank)
                raise _Aborted(_status(rank.process))

    def _hear(self, rank: _Rank) -> bool:
        """Answer what a rank asks; False if it will ask no more."""
        try:
            # A process that an ended rank has left behind may hold the other end, and say nothing.
            received = rank.socket.recv(1 << 16, socket.MSG_DONTWAIT)
        except OSError:
            received = b""
        *lines, rank.unread = (rank.unread + received).split(b"\n")
        for line in lines:
            self._answer(rank, dict(word.partition("=")[::2] for word in line.decode().split()))
        return bool(received)

    def _answer(self, rank: _Rank, asked: dict[str, str]) -> None:
        kind = asked.get("cmd", "")
        if kind == "abort":
            raise _Aborted(asked.get("exitcode", "1"))
        if kind == "barrier_in":
            self._waiting += 1
            if self._waiting == len(self._ranks):
                self._waiting = 0
                for each in self._ranks:
                    each.say("barrier_out rc=0")
        elif kind == "put":
            self._known[asked["key"]] = asked["value"]
            rank.say("put_result rc=0")
        elif kind == "get":
            value = self._known.get(asked["key"])
            rank.say("get_result rc=1" if value is None else f"get_result rc=0 value={value}")
        elif kind == "get_my_kvsname":
            rank.say(f"my_kvsname rc=0 kvsname={self._name}")
        else:
            rank.left = rank.left or kind == "finalize"
            rank.say(_FIXED.get(kind, f"{kind}_result rc=1"))


def _status(process: subprocess.Popen[bytes]) -> int:
    """As a shell says it: 128 + n after signal n."""
    code = process.returncode or 0
    return code if code >= 0 else 128 - code
