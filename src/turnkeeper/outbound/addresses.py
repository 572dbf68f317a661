"""What may be reached, and at what cost: public ones, and private ones that the settings list.

An address counts for what it leads to: one inside another (IPv4 in IPv6, 6to4, NAT64, Teredo, ISATAP) is looked
at as well, because a gateway would unwrap it.
"""

from __future__ import annotations

from collections.abc import Iterable
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

import msgspec

Address = IPv4Address | IPv6Address

NAT64 = ip_network("64:ff9b::/96")
LAST_32_BITS = (NAT64, ip_network("::/96"), ip_network("::ffff:0:0:0/96"))
"""Ranges whose addresses end in an IPv4 address that is meant: NAT64, and the two old ways of writing one."""
NOT_PUBLIC = (ip_network("fec0::/10"), ip_network("64:ff9b:1::/48"), ip_network("192.88.99.0/24"))
"""Not for everybody, although Python calls them global: site-local, a network's own NAT64, relays to IPv6."""
ISATAP = (0x00005EFE, 0x02005EFE)
"""What stands before the IPv4 address in the lower half of an address of that kind (RFC 5214)."""


class Bounds(msgspec.Struct, frozen=True, kw_only=True):
    """What one request may cost."""

    connect_seconds: float = 10.0
    silence_seconds: float = 30.0
    """Longest wait for the next bytes."""
    body_bytes_max: int = 10_000_000


class Reach:
    """The private networks that may be reached, as the settings list them: `127.0.0.1`, `10.1.0.0/16`."""

    def __init__(self, listed: Iterable[str] = ()) -> None:
        self._listed: list[IPv4Network | IPv6Network] = [ip_network(one) for one in listed]

    def refusal(self, address: str) -> str | None:
        """Why `address` may not be reached; None if it may."""
        try:
            found = ip_address(address.partition("%")[0])
        except ValueError:
            return f"{address!r} is no address"
        for one in _leads_to(found):
            if self.is_listed(one):
                continue
            if one.is_multicast or not one.is_global or any(_is_in(one, network) for network in NOT_PUBLIC):
                return f"{address} is not a public address"
        return None

    def is_listed(self, address: Address | str) -> bool:
        """Whether the settings name this address."""
        if isinstance(address, str):
            try:
                address = ip_address(address)
            except ValueError:
                return False
        return any(address.version == net.version and address in net for net in self._listed)


def _leads_to(address: Address) -> list[Address]:
    """The address, and those that stand inside it."""
    if isinstance(address, IPv4Address):
        return [address]
    if address.ipv4_mapped is not None:
        return [address.ipv4_mapped]
    inside: list[Address] = [address]
    if address.sixtofour is not None:
        inside.append(address.sixtofour)
    if address.teredo is not None:
        inside += address.teredo
    last = IPv4Address(int(address) & 0xFFFFFFFF)
    if int(address) > 1 and any(address in network for network in LAST_32_BITS):
        return [last]
    if int(address) >> 32 & 0xFFFFFFFF in ISATAP:
        inside.append(last)
    return inside


def _is_in(address: Address, network: IPv4Network | IPv6Network) -> bool:
    return address.version == network.version and address in network
