"""Finds whose session a trace is, as far as a record or the path of its file says so.

Providers have a field for the end user of a request. Claude Code writes JSON into it. Folders of collected
logs are often named in the manner of Hive: `logs/user=ada/project=parser/2026-11-01.jsonl`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import msgspec

from lamina.replay.traces.json_fields import object_field, text_field
from lamina.replay.values import Trace

_OF_RECORDS = ("user", "user_id", "email")
_OF_REQUESTS = ("safety_identifier", "user")
_IN_CLAUDE_CODE = ("account_uuid", "device_id")

_IN_PATHS = re.compile(r"(?:^|/)(user|project|client)=([^/=]+)(?=/)")
# user_2f1c…_account_8d2e…_session_77aa…, as Claude Code wrote it before it wrote JSON
_SESSION_ENDING = re.compile(r"_session_[0-9a-f-]+$")


def find_user(record: Mapping[str, Any], request: Mapping[str, Any]) -> str:
    """The user that a log names for one call; "" if it names nobody.

    `{"metadata": {"user_id": "ada"}}` names `ada`, and so does a field `user` beside the request.
    """
    beside = text_field(record, *_OF_RECORDS)
    if beside:
        return beside
    named = text_field(request, *_OF_REQUESTS)
    if named:
        return named
    return _read_user_id(text_field(object_field(request, "metadata"), "user_id"))


def _read_user_id(user_id: str) -> str:
    """A user without the session that Claude Code writes beside it."""
    if user_id.startswith("{"):
        try:
            return text_field(msgspec.json.decode(user_id), *_IN_CLAUDE_CODE)
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
            return ""
    return _SESSION_ENDING.sub("", user_id)


def name_by_path(trace: Trace, path: str) -> Trace:
    """The trace with the user, the project and the client that its path names, where it has none."""
    named = dict(_IN_PATHS.findall(path.replace("\\", "/")))
    missing = {name: value for name, value in named.items() if not getattr(trace, name)}
    if not missing:
        return trace
    return msgspec.structs.replace(trace, **missing)
