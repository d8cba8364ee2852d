"""What a check of `lamina doctor` says: that something is ok, a remark on it, or that it is wrong."""

from __future__ import annotations

from typing import Literal

import msgspec


class CheckLine(msgspec.Struct, frozen=True, kw_only=True):
    """What one check found, and what to do."""

    subject: str
    verdict: Literal["ok", "remark", "wrong"]
    text: str
    next_step: str = ""


def ok(subject: str, text: str, *, next_step: str = "") -> CheckLine:
    return CheckLine(subject=subject, verdict="ok", text=text, next_step=next_step)


def remark(subject: str, text: str, *, next_step: str) -> CheckLine:
    return CheckLine(subject=subject, verdict="remark", text=text, next_step=next_step)


def wrong(subject: str, text: str, *, next_step: str) -> CheckLine:
    return CheckLine(subject=subject, verdict="wrong", text=text, next_step=next_step)
