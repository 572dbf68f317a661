"""Who may call at all: the names this server answers under, and the pages that may call it.

A page on the web can make a browser send requests to 127.0.0.1: under the page's own name, if that name is
pointed here (DNS rebinding), or across sites. The first is stopped by the Host header, the second by Origin.
"""

from __future__ import annotations

from collections.abc import Iterable
from ipaddress import ip_address
from typing import Final

from turnkeeper.errors import HostRefused, OriginRefused

LOOPBACK_NAMES: Final = frozenset({"localhost", "127.0.0.1", "::1"})

DEFAULT_PORTS: Final = {"http": "80", "https": "443"}


def is_loopback(host: str) -> bool:
    """Whether an address to listen on, or a name to be called by, means this machine only."""
    if host.lower() in LOOPBACK_NAMES:
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def split_authority(authority: str) -> tuple[str, str]:
    """`[::1]:80` -> ("::1", "80"); `name` -> ("name", "")."""
    if authority.startswith("["):
        host, _, rest = authority[1:].partition("]")
        return host.lower(), rest.removeprefix(":")
    host, _, port = authority.partition(":")
    return host.lower(), port


class Guard:
    """The checks of one server, by its settings."""

    def __init__(
        self,
        *,
        host: str = "127.0.0.1",
        remote: bool = False,
        allowed_hosts: Iterable[str] = (),
        allowed_origins: Iterable[str] = (),
    ) -> None:
        self._hosts = {host.lower(), *(name.lower() for name in allowed_hosts)}
        self._remote = remote
        self._origins = {origin.lower().rstrip("/") for origin in allowed_origins}
        self._passed: set[str] = set()
        """Host headers that were found good; there are only a few different ones."""

    def check_host(self, header: str) -> None:
        """Raise HostRefused unless the server answers under this name."""
        if header in self._passed:
            return
        host, port = split_authority(header)
        if not (host in self._hosts or header.lower() in self._hosts or self._is_own_address(host)):
            raise HostRefused(host=header)
        if port and not port.isdecimal():
            raise HostRefused(host=header)
        if len(self._passed) < 100:
            self._passed.add(header)

    def _is_own_address(self, host: str) -> bool:
        if is_loopback(host):
            return True
        if not self._remote:
            return False
        try:
            # A bare address cannot be pointed elsewhere, so it is no rebinding.
            ip_address(host)
        except ValueError:
            return False
        return True

    def check_origin(self, origin: str, host_header: str) -> None:
        """Raise OriginRefused unless the page that calls is one of this server's own, or an allowed one."""
        lowered = origin.lower()
        if lowered in self._origins:
            return
        scheme, separator, authority = lowered.partition("://")
        if not separator or scheme not in DEFAULT_PORTS:
            raise OriginRefused(origin=origin)
        default = DEFAULT_PORTS[scheme]
        theirs = split_authority(authority)
        ours = split_authority(host_header)
        if (theirs[0], theirs[1] or default) != (ours[0], ours[1] or default):
            raise OriginRefused(origin=origin)
