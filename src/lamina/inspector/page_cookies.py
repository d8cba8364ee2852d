"""The cookie of a page that was opened with an access token.

A browser sends the cookies of a host to every port of it, so whatever else runs there may read them. The
cookie therefore does not hold the token. It holds the moment at which it ends and a random number, both
signed with a key that only this server has: it opens the inspector's pages for a while, and nothing else.
"""

from __future__ import annotations

import hmac
import secrets
from hashlib import sha256

NAME = "lamina_page"
LIFETIME = 12 * 3600
"""Seconds for which a page stays open before the token is needed again."""

KEY_BYTES = 32


def make_key() -> bytes:
    """A key to sign cookies with. A server that starts again has another one."""
    return secrets.token_bytes(KEY_BYTES)


def digest_token(token: str) -> str:
    """The SHA-256 of an access token, in hex: a cookie belongs to one token."""
    return sha256(token.encode("utf-8", "surrogateescape")).hexdigest()


def write_cookie(key: bytes, token_digest: str, *, now: float) -> str:
    """The value of a cookie, such as `1794873600.9f86d081884c7d65.2c26b46b…`."""
    content = f"{int(now) + LIFETIME}.{secrets.token_hex(8)}"
    return f"{content}.{_sign(key, token_digest, content)}"


def is_valid(cookie: str, key: bytes, token_digest: str, *, now: float) -> bool:
    """Whether this server wrote a cookie for the token, and it has not ended."""
    content, _, signature = cookie.rpartition(".")
    ends = content.partition(".")[0]
    if not hmac.compare_digest(signature.encode(), _sign(key, token_digest, content).encode()):
        return False
    return int(ends) > now  # the signature is right, so it is a number


def read_cookie(header: str) -> str:
    """The value in a `Cookie` header, "" if it is not there."""
    for piece in header.split(";"):
        name, _, value = piece.strip().partition("=")
        if name == NAME:
            return value
    return ""


def write_header(value: str, *, path: str) -> str:
    """The `Set-Cookie` header. The browser sends the cookie to addresses below `path` only.

    It is Lax, so that a link in a chat message opens its place. Strict would leave it out there, and the
    reader would need the token again. Other sites gain nothing: what they can make a browser ask for besides
    the page itself is refused.
    """
    return f"{NAME}={value}; HttpOnly; SameSite=Lax; Path={path}; Max-Age={LIFETIME}"


def _sign(key: bytes, token_digest: str, content: str) -> str:
    return hmac.new(key, f"{token_digest}.{content}".encode(), sha256).hexdigest()
