"""A slow link on one Linux machine: two network namespaces, a veth pair, `tc tbf` on both ends.

The namespaces have no names: they live as long as a process is in them, and every process here is
killed with the one that started it. So nothing is left, whatever ends a run, even SIGKILL.
"""

import ctypes
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

INTERFACE = "link0"
"""Name of either end."""
BURST = "16kb"
"""What passes unshaped: more would let small messages through faster than the link."""
QUEUE = "100ms"
"""How long a packet may wait before it is dropped."""
SET_PDEATHSIG = 1
"""PR_SET_PDEATHSIG in linux/prctl.h."""


class NoLabError(Exception):
    """What the machine lacks for a slow link."""


@contextmanager
def started(command: list[str]) -> Iterator[subprocess.Popen[bytes]]:
    """Run a command that dies with this process, and at the end of the block."""
    process = subprocess.Popen(command, preexec_fn=_die_with_parent)  # noqa: PLW1509  # one thread
    try:
        yield process
    finally:
        process.kill()
        process.wait()


@contextmanager
def slow_link(rate: str) -> Iterator[list[list[str]]]:
    """Shape a link of two ends and yield, for each end, what runs a command there.

    `rate` is written as `tc` reads it: 100mbit.
    """
    _check()
    with ExitStack() as stack:
        holders = [
            stack.enter_context(started(["unshare", "--net", "--", "sleep", "infinity"]))
            for _ in range(2)
        ]
        _await_namespaces(holders)
        ends = [["nsenter", f"--net=/proc/{each.pid}/ns/net", "--"] for each in holders]
        one, other = (str(each.pid) for each in holders)
        pair = ["link", "add", INTERFACE, "netns", one, "type", "veth"]
        _run(["ip", *pair, "peer", "name", INTERFACE, "netns", other])
        for number, end in enumerate(ends, 1):
            _run([*end, "ip", "link", "set", "lo", "up"])
            _run([*end, "ip", "address", "add", f"10.78.0.{number}/24", "dev", INTERFACE])
            _run([*end, "ip", "link", "set", INTERFACE, "up"])
            shape = ["tbf", "rate", rate, "burst", BURST, "latency", QUEUE]
            _run([*end, "tc", "qdisc", "add", "dev", INTERFACE, "root", *shape])
        yield ends


def sent() -> tuple[int, int]:
    """Bytes and packets that this process's end of the link has sent."""
    for line in Path("/proc/self/net/dev").read_text().splitlines():
        name, _, counts = line.partition(":")
        if name.strip() == INTERFACE:
            words = counts.split()
            return int(words[8]), int(words[9])
    raise NoLabError(f"no {INTERFACE} in this network namespace")


def _check() -> None:
    if not sys.platform.startswith("linux"):
        raise NoLabError("a slow link needs Linux")
    if os.geteuid() != 0:
        raise NoLabError("a slow link needs root, who makes network namespaces")
    for tool in ("ip", "tc", "nsenter", "unshare"):
        if shutil.which(tool) is None:
            package = "iproute2" if tool in ("ip", "tc") else "util-linux"
            raise NoLabError(f"a slow link needs `{tool}`: apt-get install {package}")


def _await_namespaces(holders: list[subprocess.Popen[bytes]]) -> None:
    """Wait until each holder has left the namespace of this process."""
    ours = _namespace("self")
    for holder in holders:
        while holder.poll() is None and _namespace(str(holder.pid)) == ours:
            os.sched_yield()
        if holder.poll() is not None:
            raise NoLabError("this machine lets nobody make a network namespace (CAP_SYS_ADMIN)")


def _namespace(process: str) -> int:
    return Path(f"/proc/{process}/ns/net").stat().st_ino


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        tool = " ".join(command[command.index("--") + 1 if "--" in command else 0 :])
        raise NoLabError(f"{tool}: {done.stderr.strip() or done.returncode}")


def _die_with_parent() -> None:
    ctypes.CDLL(None).prctl(SET_PDEATHSIG, signal.SIGKILL)
