"""The Converse API of Amazon Bedrock, as bodies of requests and as arguments of boto3.

    parse ──▶ log, head          render ──▶ request          check ──▶ what the API would refuse
    answers ──▶ responses and events          cache_view ──▶ what its cache sees, cache points

Read `blocks` first: it has the shapes. A request names its model in `modelId`, which is a part of the path in
HTTP: whoever has only the body adds it. Bytes are base64, as in the body; `sdk` makes them what boto3 takes.
"""

from __future__ import annotations

from lamina.core.repair import Repairs
from lamina.dialects.bedrock_converse.answers import absorb, absorb_stream, write_answer, write_closing_events
from lamina.dialects.bedrock_converse.blocks import ID_PATTERN, NAME
from lamina.dialects.bedrock_converse.cache_view import count_markers, mark, stream
from lamina.dialects.bedrock_converse.check import check, check_again
from lamina.dialects.bedrock_converse.head import HEAD
from lamina.dialects.bedrock_converse.parse import parse
from lamina.dialects.bedrock_converse.render import carries, lasting, render
from lamina.dialects.bedrock_converse.sdk import to_sdk_arguments
from lamina.dialects.json_values import LIST_TYPES, is_untyped_block, list_or_empty, mapping_or_empty
from lamina.dialects.port import Answers, CacheView, Dialect, HeadShape, Markers, Request, Wire
from lamina.dialects.words import OPENING

__all__ = ["DIALECT", "recognises", "render", "to_sdk_arguments"]

_OWN_FIELDS = frozenset(
    """modelId inferenceConfig additionalModelRequestFields guardrailConfig
    additionalModelResponseFieldPaths""".split()
)
_OWN_BLOCKS = frozenset(
    "text image document toolUse toolResult reasoningContent cachePoint guardContent".split()
)


def recognises(request: Request) -> bool:
    """Whether it has messages, and a field or a block that only this wire format has.

    A block of another API says its type in `type`; here it is the one field of the block.
    """
    messages = request.get("messages")
    if not isinstance(messages, LIST_TYPES):
        return False
    if not _OWN_FIELDS.isdisjoint(request):
        return True
    for message in messages:
        for block in list_or_empty(mapping_or_empty(message).get("content")):
            return is_untyped_block(block) and not _OWN_BLOCKS.isdisjoint(block)
    return False


DIALECT = Dialect(
    name=NAME,
    recognises=recognises,
    wire=Wire(
        parse=parse,
        render=render,
        check=check,
        recheck=check_again,
        carries=carries,
        repairs=Repairs(unique_ids="log", id_pattern=ID_PATTERN),
        opening=OPENING,
        lasting=lasting,
    ),
    head=HeadShape(read=HEAD.read, write=HEAD.write),
    cache=CacheView(
        stream=stream, markers=Markers(cache="breakpoints", put=mark, find=count_markers, stream=stream)
    ),
    answers=Answers(
        absorb=absorb,
        absorb_stream=absorb_stream,
        write=write_answer,
        write_closing_events=write_closing_events,
    ),
)
