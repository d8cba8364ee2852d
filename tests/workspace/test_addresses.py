from __future__ import annotations

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lamina.workspace.fetch import is_public

PRIVATE = (
    "0.0.0.0 0.1.2.3 10.0.0.1 100.64.0.1 100.127.255.255 100.100.100.200 127.0.0.1 127.255.255.255 "
    "168.63.129.16 169.254.169.254 172.16.5.5 172.31.255.255 192.0.0.1 192.0.0.192 192.0.2.1 192.31.196.1 "
    "192.52.193.1 192.88.99.1 192.168.1.1 192.175.48.1 198.18.0.1 198.19.255.255 198.51.100.1 203.0.113.1 "
    "224.0.0.1 239.255.255.255 240.0.0.1 255.255.255.255"
).split()
PUBLIC = (
    "8.8.8.8 1.1.1.1 100.63.255.255 100.128.0.1 172.15.0.1 172.32.0.1 192.0.1.1 198.17.0.1 223.255.255.255"
)


@pytest.mark.parametrize("address", PRIVATE)
def test_special_addresses_of_version_4_are_not_public(address: str) -> None:
    assert not is_public(ipaddress.ip_address(address))


@pytest.mark.parametrize("address", PUBLIC.split())
def test_other_addresses_of_version_4_are(address: str) -> None:
    assert is_public(ipaddress.ip_address(address))


@pytest.mark.parametrize(
    "address",
    "::1 :: fe80::1 febf::1 fec0::1 feff::1 fc00::1 fd00:ec2::254 ff02::1 ff0e::1 100::1 64:ff9b:1::808:808 "
    "2001::1 2001:0:4136:e378:8000:63bf:3fff:fdd2 2001:2::1 2001:10::1 2001:20::1 2001:db8::1 3fff::1 "
    "5f00::1 2620:4f:8000::1 ::ffff:0:8.8.8.8 ::8.8.8.8 4000::1 e000::1".split(),
)
def test_special_addresses_of_version_6_are_not_public(address: str) -> None:
    assert not is_public(ipaddress.ip_address(address))


@pytest.mark.parametrize("address", "2606:4700:4700::1111 2a00:1450:4001:80b::200e 2600::1".split())
def test_other_addresses_of_version_6_are(address: str) -> None:
    assert is_public(ipaddress.ip_address(address))


WAYS = {
    "mapped": "::ffff:{0}",
    "NAT64": "64:ff9b::{0}",
    "6to4": "2002:{1}::1",
    "ISATAP": "2606:4700::5efe:{0}",
    "ISATAP, global": "2606:4700::200:5efe:{0}",
}


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
@given(st.ip_addresses(v=4))
def test_an_address_inside_another_counts_as_itself(way: str, inner: ipaddress.IPv4Address) -> None:
    number = int(inner)
    outer = ipaddress.IPv6Address(way.format(inner, f"{number >> 16:x}:{number & 0xFFFF:x}"))
    assert is_public(outer) is is_public(inner)


@given(st.ip_addresses())
def test_what_is_public_here_python_calls_global(
    address: ipaddress.IPv4Address | ipaddress.IPv6Address,
) -> None:
    """Its lists grow with its releases: what is missing in an older one is no difference that matters."""
    if is_public(address) and not getattr(address, "sixtofour", None):
        assert address.is_global or getattr(address, "ipv4_mapped", None)
