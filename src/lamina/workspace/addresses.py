"""Tells which IP addresses belong to the public internet.

The lists are IANA's registries of special-purpose addresses, as of 2025. They are written out here, because
Python's own `is_global` has changed from one release to the next. An IPv4 address inside of an IPv6 address
is checked too. Nothing is looked up.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network

_NOT_PUBLIC_V4 = [
    ipaddress.IPv4Network(network)
    for network in (
        "0.0.0.0/8",  # this network
        "10.0.0.0/8",  # private
        "100.64.0.0/10",  # behind a carrier's translation
        "127.0.0.0/8",  # this machine
        "168.63.129.16/32",  # a cloud's own services, seen from its machines only
        "169.254.0.0/16",  # link-local, where clouds keep their metadata
        "172.16.0.0/12",  # private
        "192.0.0.0/24",  # protocol assignments
        "192.0.2.0/24",  # documentation
        "192.31.196.0/24",  # AS112
        "192.52.193.0/24",  # multicast tunnels
        "192.88.99.0/24",  # 6to4 relays
        "192.168.0.0/16",  # private
        "192.175.48.0/24",  # AS112
        "198.18.0.0/15",  # benchmarks
        "198.51.100.0/24",  # documentation
        "203.0.113.0/24",  # documentation
        "224.0.0.0/4",  # multicast
        "240.0.0.0/4",  # reserved, broadcast
    )
]

_GLOBAL_V6 = ipaddress.IPv6Network("2000::/3")
"""Every assigned address is in it. So these are not public: loopback, link-local (fe80::/10), site-local
(fec0::/10), unique local (fc00::/7), multicast (ff00::/8), local NAT64 (64:ff9b:1::/48), and segment routing
(5f00::/16)."""

_NOT_PUBLIC_V6 = [
    ipaddress.IPv6Network(network)
    for network in (
        "2001::/23",  # protocol assignments: Teredo, benchmarks, ORCHID and others
        "2001:db8::/32",  # documentation
        "2620:4f:8000::/48",  # AS112
        "3fff::/20",  # documentation
    )
]

# IPv6 networks whose addresses have an IPv4 address inside
_MAPPED = ipaddress.IPv6Network("::ffff:0:0/96")
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")
_COMPATIBLE = ipaddress.IPv6Network("::/96")
_SIX_TO_FOUR = ipaddress.IPv6Network("2002::/16")
_ISATAP = frozenset((0x0000_5EFE, 0x0200_5EFE))


def is_public(address: Address) -> bool:
    """Whether an address is one of the public internet.

    An IPv6 address with an IPv4 address inside is public only if the inner one is too.
    """
    if isinstance(address, ipaddress.IPv4Address):
        return not _is_in(address, _NOT_PUBLIC_V4)
    inner = _inner_address(address)
    if inner is not None and not is_public(inner):
        return False
    if _is_in(address, (_MAPPED, _NAT64)):
        return True  # the IPv4 address that it leads to is public
    return address in _GLOBAL_V6 and not _is_in(address, _NOT_PUBLIC_V6)


def _is_in(address: Address, networks: Iterable[Network]) -> bool:
    return any(address in network for network in networks)


def _inner_address(address: ipaddress.IPv6Address) -> ipaddress.IPv4Address | None:
    """The IPv4 address that an IPv6 address leads to, None if it leads to none.

    It stands in the last 32 bits: `::ffff:10.0.0.1` leads to `10.0.0.1`. In 6to4 it comes after the first 16
    bits: `2002:0a00:0001::` leads to `10.0.0.1` too.
    """
    number = int(address)
    last_bits = ipaddress.IPv4Address(number & 0xFFFF_FFFF)
    if _is_in(address, (_MAPPED, _NAT64, _COMPATIBLE)):
        return last_bits
    if address in _SIX_TO_FOUR:
        return ipaddress.IPv4Address(number >> 80 & 0xFFFF_FFFF)
    if number >> 32 & 0xFFFF_FFFF in _ISATAP:
        return last_bits
    return None
