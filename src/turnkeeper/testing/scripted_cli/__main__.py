"""The scripted CLI as a program: `python -m turnkeeper.testing.scripted_cli DIALECT [the CLI's own arguments]`.

With the arguments that ask the real one for its protocol (`--mode rpc`, `app-server`, `stream-json`) it speaks that over
its pipes; else it draws on a terminal.

Environment: TURNKEEPER_SCRIPTED_CLI (quirks as JSON), TURNKEEPER_SCRIPTED_LOG (what it did, JSON lines),
TURNKEEPER_SCRIPTED_ORDERS (a file of JSON lines that a test appends to).
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
import termios
import time
import tty
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from turnkeeper.testing.scripted_cli.program import ScriptedCli, fit
from turnkeeper.testing.scripted_cli.quirks import Quirks, decode
from turnkeeper.testing.scripted_cli.structured import PROTOCOLS, speaks

ORDERS_SECONDS = 0.05


class _Orders:
    """Lines that a test appends to a file while this process runs."""

    def __init__(self, path: str | None) -> None:
        self.path = Path(path) if path else None
        self.offset = self.path.stat().st_size if self.path is not None and self.path.exists() else 0

    def take(self) -> list[dict[str, Any]]:
        if self.path is None or not self.path.exists():
            return []
        with self.path.open("rb") as file:
            file.seek(self.offset)
            data = file.read()
        whole = data.rfind(b"\n") + 1
        self.offset += whole
        return [msgspec.json.decode(line) for line in data[:whole].splitlines()]


def main() -> int:
    """Play the CLI until it ends; its exit code."""
    env = dict(os.environ)
    quirks = decode(env["TURNKEEPER_SCRIPTED_CLI"]) if env.get("TURNKEEPER_SCRIPTED_CLI") else Quirks()
    log_path = env.get("TURNKEEPER_SCRIPTED_LOG")
    log_file = Path(log_path).open("ab", buffering=0) if log_path else None  # noqa: SIM115 - open till the end

    def log(entry: dict[str, Any]) -> None:
        if log_file is not None:
            log_file.write(msgspec.json.encode({"at": time.time(), "pid": os.getpid(), **entry}) + b"\n")

    def make(argv: list[str]) -> ScriptedCli:
        return ScriptedCli(
            sys.argv[1],
            argv,
            home=Path(env.get("HOME", "/")),
            cwd=str(Path.cwd()),
            env=env,
            quirks=quirks,
            clock=time.time,
            log=log,
            pid=os.getpid(),
        )

    children = _children(quirks)
    orders = _Orders(env.get("TURNKEEPER_SCRIPTED_ORDERS"))
    if speaks(sys.argv[1], sys.argv[2:]):
        return _converse(make, orders, quirks)
    cli = make(sys.argv[2:])
    wake_read, wake_write = os.pipe()
    os.set_blocking(wake_write, False)
    signal.set_wakeup_fd(wake_write)
    for number, ignored in ((signal.SIGHUP, quirks.ignores_sighup), (signal.SIGTERM, quirks.ignores_sigterm)):
        if ignored:
            signal.signal(number, signal.SIG_IGN)
        else:
            signal.signal(number, lambda *_: cli.hangup())
    signal.signal(signal.SIGWINCH, lambda *_: _resize(cli))
    _resize(cli)
    was = termios.tcgetattr(0)
    tty.setraw(0)
    out = sys.stdout.buffer
    begin = (b"\x1b[?1049h" if quirks.alternate_screen else b"") + (
        b"" if quirks.no_bracketed else b"\x1b[?2004h"
    )
    out.write(begin)
    drawn: list[str] = []
    title = ""
    try:
        while cli.exit_code is None:
            if cli.title != title:
                title = cli.title
                out.write(f"\x1b]2;{title}\x07".encode())
            frozen = cli.clock() < cli.frozen_until
            lines = drawn if frozen else fit(cli.draw(), cli.columns, cli.rows)
            if not frozen and (lines != drawn or cli.dirty):
                drawn, cli.dirty = lines, False
                out.write(b"\x1b[H\x1b[2J" + "\r\n".join(lines).encode())
            with contextlib.suppress(OSError):
                out.flush()
            _wait(cli, orders, wake_read, quirks)
            cli.advance()
        lines = fit(cli.draw(), cli.columns, cli.rows)
        out.write(b"\x1b[H\x1b[2J" + "\r\n".join(lines).encode() + b"\r\n")
        with contextlib.suppress(OSError):
            out.flush()
    finally:
        with contextlib.suppress(termios.error):
            termios.tcsetattr(0, termios.TCSANOW, was)
        for child in children:
            if not quirks.wrapper:
                child.terminate()
    return cli.exit_code


def _converse(make: Callable[[list[str]], ScriptedCli], orders: _Orders, quirks: Quirks) -> int:
    """Speak the dialect's protocol over stdin and stdout until the input ends; the exit code."""

    def say(row: dict[str, Any]) -> None:
        os.write(1, msgspec.json.encode(row) + b"\n")

    client = PROTOCOLS[sys.argv[1]](sys.argv[2:], make, say)
    for number, ignored in ((signal.SIGHUP, quirks.ignores_sighup), (signal.SIGTERM, quirks.ignores_sigterm)):
        signal.signal(number, signal.SIG_IGN if ignored else signal.SIG_DFL)
    rest = b""
    while client.cli is None or client.cli.exit_code is None:
        wake = None if client.cli is None else client.cli.wake_at()
        seconds = ORDERS_SECONDS if wake is None else min(ORDERS_SECONDS, max(0.0, wake - time.time()))
        ready, _, _ = select.select([0], [], [], seconds)
        if ready:
            data = os.read(0, quirks.read_chunk)
            if not data:
                break
            *rows, rest = (rest + data).split(b"\n")
            for row in rows:
                client.row(msgspec.json.decode(row))
        if client.cli is not None:
            for order in orders.take():
                client.cli.order(order)
            client.cli.advance()
        client.after()
    if client.cli is None:
        return 0
    if client.cli.final_words:
        sys.stderr.write(f"{client.cli.final_words}\n")
    return client.cli.exit_code or 0


def _wait(cli: ScriptedCli, orders: _Orders, wake_read: int, quirks: Quirks) -> None:
    wake = cli.wake_at()
    seconds = 5.0 if wake is None else max(0.0, wake - time.time())
    if orders.path is not None:
        seconds = min(seconds, ORDERS_SECONDS)
    ready, _, _ = select.select([0, wake_read], [], [], seconds)
    if wake_read in ready:
        os.read(wake_read, 1024)
    if 0 in ready:
        try:
            data = os.read(0, quirks.read_chunk)
        except OSError:
            data = b""
        if data:
            cli.feed(data)
        elif not quirks.ignores_sighup:
            cli.hangup()
        else:
            time.sleep(1)
    for order in orders.take():
        cli.order(order)


def _resize(cli: ScriptedCli) -> None:
    with contextlib.suppress(OSError):
        size = os.get_terminal_size(1)
        cli.columns, cli.rows = size.columns, size.lines
        cli.dirty = True


def _children(quirks: Quirks) -> list[subprocess.Popen[bytes]]:
    return [
        subprocess.Popen(
            ["/bin/sleep", "600"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session="setsid" in quirks.wrapper,
        )
        for _ in range(quirks.children)
    ]


if __name__ == "__main__":
    raise SystemExit(main())
