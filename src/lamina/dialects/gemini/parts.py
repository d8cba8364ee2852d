"""Parts of a content as typed parts, and typed parts as parts of a content.

What is not understood becomes a `Raw` part that holds it as it is. Nothing here knows where a part stands,
besides the place that its errors name.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from lamina.core.text.characters import WHITE_SPACE, is_blank, lower_ascii
from lamina.core.values import Document, Image, Part, Raw, Text, Thinking, ToolCall, ToolResult
from lamina.core.wording import text_of
from lamina.dialects.gemini.wire import LISTS, NAME, Json, camel, encoded, field, plain, shown, snake, text_at
from lamina.errors import BadInput

Inner = Text | Image | Document | Raw
Spelling = Callable[[str], str]
"""The name of a field, given by its name in a REST body, as it is to be written."""

DATA = (
    "text",
    "inlineData",
    "fileData",
    "functionCall",
    "functionResponse",
    "executableCode",
    "codeExecutionResult",
    "toolCall",
    "toolResponse",
)
"""Fields of which a part has exactly one."""

_SPELLED = {spelling(name): name for name in DATA for spelling in (snake, camel)}
_BESIDE = frozenset(
    """thought thoughtSignature videoMetadata mediaResolution partMetadata mediaProcessing speechMetadata
    audioTranscription""".split()
)
_BESIDE_TOO = frozenset(map(snake, _BESIDE))

NO_ID = "unnamed_call_"
"""How the ids of calls begin that have none on the wire."""

TOLD = ("output", "result", "error")
"""Fields of a response that may hold all of it as one text."""

_ENCODER = msgspec.json.Encoder()
_BASE64 = re.compile(r"[A-Za-z0-9+/_-]+={0,2}")
_DATA_URL = re.compile(r"data:([\w.+/-]{0,100})(?:;[\w=.-]{1,100}){0,4};base64,", re.ASCII)
_FETCHED = ("https://", "http://", "gs://")
_KINDS_OF_FILES = {
    "png": "image/png",
    "jpg": "image/jpeg",
    "jpeg": "image/jpeg",
    "webp": "image/webp",
    "gif": "image/gif",
    "heic": "image/heic",
    "pdf": "application/pdf",
    "txt": "text/plain",
    "md": "text/markdown",
    "html": "text/html",
    "csv": "text/csv",
    "mp4": "video/mp4",
    "mp3": "audio/mp3",
    "wav": "audio/wav",
}


def signature_of(block: Mapping[str, Any]) -> str:
    return encoded(field(block, "thoughtSignature"))


def part_of(value: Any, *, model: bool) -> Part:
    """A part of a content; a call has no id where the wire has none, a result neither name nor id."""
    block = plain(value)
    if isinstance(value, str):
        return Text(value)
    if block is None:
        raise BadInput(f"a part is {shown(value)}", hint="give text or an object; bytes as inline_data")
    sorts = sorts_of(block)
    if len(sorts) > 1:
        hint = "give each a part of its own"
        raise BadInput(f"a part has {' and '.join(sorts)}", hint=hint)
    if sorts == ["text"]:
        return _text(block, model=model)
    if not sorts and not is_unknown(block):
        return Text("")
    read = _READERS.get(sorts[0]) if sorts else _address
    return (read(block) if read else None) or Raw(dialect=NAME, data=block)


def sorts_of(block: Mapping[str, Any]) -> list[str]:
    """The fields with data that a part has: exactly one, if all is well."""
    return [_SPELLED[name] for name, value in block.items() if name in _SPELLED and value is not None]


def is_unknown(part: Json) -> bool:
    """Whether a part has data of a sort that is not known here."""
    return any(
        value is not None and name not in _SPELLED and name not in _BESIDE and name not in _BESIDE_TOO
        for name, value in part.items()
    )


def call_of(block: Json) -> ToolCall:
    asked = _object(field(block, "functionCall"), "functionCall")
    args = field(asked, "args")
    if args is not None and not isinstance(args, dict):
        raise BadInput(f"args is {shown(args)}", place="functionCall.args", hint="give an object")
    name = asked.get("name")
    if not isinstance(name, str):
        raise BadInput(f"the name is {shown(name)}", place="functionCall.name", hint="give a string")
    return ToolCall(id=text_at(asked, "id"), name=name, arguments=_json(args or {}, "functionCall.args"))


def result_of(block: Json) -> ToolResult:
    given = _object(field(block, "functionResponse"), "functionResponse")
    response = plain(given.get("response"))
    if response is None and given.get("response") is not None:
        problem = f"response is {shown(given['response'])}"
        raise BadInput(problem, place="functionResponse.response", hint="give an object")
    told, text = _told(response or {})
    content = [] if response is None else [Text(text)]
    media = given.get("parts")
    inner = [_shown_with(piece) for piece in media] if isinstance(media, LISTS) else []
    return ToolResult(
        id=text_at(given, "id"),
        name=text_at(given, "name"),
        content=(*content, *inner),
        error=told == "error",
    )


def _shown_with(piece: Any) -> Inner:
    """Media that stand inside a result."""
    block = plain(piece)
    if block is None:
        raise BadInput(f"a part is {shown(piece)}", place="functionResponse.parts", hint="give an object")
    return _inline_data(block) or _file_data(block) or Raw(dialect=NAME, data=block)


def sayable(part: Part) -> bool:
    """Whether media can be shown to this API: as data, as text, or at an address that it fetches."""
    if isinstance(part, Document) and part.text:
        return True
    if not isinstance(part, Image | Document):
        return True
    data = part.data or _inline(part.url)[1]
    return bool(_BASE64.fullmatch(data)) if data else part.url.startswith(_FETCHED)


def block_of(part: Part, say: Spelling) -> Json | None:
    """A part of a content for what did not come as one; None for what says nothing here."""
    match part:
        case Text(text):
            return None if is_blank(text) else {"text": text}
        case Image() | Document():
            return _media(part, say)
        case Thinking():
            return _thought(part, say)
        case Raw():
            return part.data if part.dialect == NAME else {"text": text_of((part,))}
    return None


def arguments_of(call: ToolCall) -> Json:
    """The arguments as an object; what a model wrote that is not one stays readable inside one."""
    try:
        arguments = json.loads(call.arguments)
    except (ValueError, RecursionError):
        arguments = call.arguments.strip(WHITE_SPACE) or {}
    return arguments if isinstance(arguments, dict) else {"arguments": arguments}


def response_of(result: ToolResult, was: Mapping[str, Any]) -> Json:
    """What a result says, under the name by which it said so before."""
    said = text_of(part for part in result.content if not shows(part))
    told = _told(was)[0] if was else ""
    return {told or ("error" if result.error else "output"): said}


def shows(part: Part) -> bool:
    """Whether a part of a result must stand beside it: a response is text only."""
    pictured = isinstance(part, Image) or (isinstance(part, Document) and not part.text)
    return pictured and sayable(part)


def _text(block: Json, *, model: bool) -> Part:
    text = block.get("text")
    if not isinstance(text, str):
        raise BadInput(f"text is {shown(text)}", place="text", hint="give a string")
    signature = signature_of(block)
    said = not is_blank(text)
    thought = block.get("thought") is True and (said or signature)
    return (
        Thinking(text=text, signature=signature)
        if model and (thought or (signature and not said))
        else Text(text)
    )


def _thought(thinking: Thinking, say: Spelling) -> Json | None:
    if not thinking.text and not thinking.signature:
        return None
    signed = _BASE64.fullmatch(thinking.signature) is not None
    signature = {say("thoughtSignature"): thinking.signature} if signed else {}
    return {"text": thinking.text, "thought": True, **signature} if thinking.text or signed else None


def _inline_data(block: Json) -> Image | Document | None:
    blob = plain(field(block, "inlineData")) or {}
    data, media = encoded(blob.get("data")), text_at(blob, "mimeType")
    if not data:
        return None
    if media.startswith("image/"):
        return Image(data=data, media_type=media)
    return Document(data=data, media_type=media, name=text_at(blob, "displayName"))


def _file_data(block: Json) -> Image | Document | None:
    return _address(plain(field(block, "fileData")) or {})


def _address(file: Json) -> Image | Document | None:
    """A file by its address; one that was uploaded, and is given as the SDK returned it, has it as `uri`."""
    url, media = text_at(file, "fileUri") or text_at(file, "uri"), text_at(file, "mimeType")
    if not url:
        return None
    if media.startswith("image/"):
        return Image(url=url, media_type=media)
    return Document(url=url, media_type=media, name=text_at(file, "displayName") or url.rsplit("/", 1)[-1])


_READERS: dict[str, Callable[[Json], Part | None]] = {
    "inlineData": _inline_data,
    "fileData": _file_data,
    "functionCall": call_of,
    "functionResponse": result_of,
}


def _media(part: Image | Document, say: Spelling) -> Json:
    if isinstance(part, Document) and part.text:
        return {"text": part.text}
    named = part.name if isinstance(part, Document) else ""
    if not sayable(part):
        return {"text": f"[{lower_ascii(type(part).__name__)} {named or part.url[:200]}]"}
    kind, data = _inline(part.url)
    media = part.media_type or kind or _kind_of_file(part.url, isinstance(part, Image))
    if part.data or data:
        return {say("inlineData"): {say("mimeType"): media, "data": part.data or data}}
    return {say("fileData"): {say("fileUri"): part.url, say("mimeType"): media}}


def _inline(url: str) -> tuple[str, str]:
    """Media type and base64 of a data URL; nothing for other addresses."""
    found = _DATA_URL.match(url)
    return (found[1], url[found.end() :]) if found else ("", "")


def _kind_of_file(url: str, image: bool) -> str:  # noqa: FBT001
    ending = lower_ascii(url.partition("?")[0].rpartition(".")[2])
    return _KINDS_OF_FILES.get(ending, "image/png" if image else "application/pdf")


def _told(response: Mapping[str, Any]) -> tuple[str, str]:
    """The one field that a response consists of, if it is text under a known name, and all of it as text."""
    for name in TOLD:
        if isinstance(text := response.get(name), str) and len(response) == 1:
            return name, text
    told = "error" if response.get("error") and not (response.keys() & {"output", "result"}) else ""
    return told, _json(response, "functionResponse.response")


def _object(value: Any, place: str) -> Json:
    found = plain(value)
    if found is None:
        raise BadInput(f"{place} is {shown(value)}", place=place, hint="give an object")
    return found


def _json(value: Any, place: str) -> str:
    try:
        return _ENCODER.encode(value).decode()
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        hint = "use str, int, float, bool, None, list and dict"
        raise BadInput(f"not a JSON value: {error}", place=place, hint=hint) from None
