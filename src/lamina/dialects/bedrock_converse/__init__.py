"""The Converse API of Amazon Bedrock, as bodies of requests and as arguments of boto3.

    parse ──▶ log, head          render ──▶ request          check ──▶ what the API would refuse
    answers ──▶ responses and events          cache_view ──▶ what its cache sees, cache points

Read `blocks` first: it has the shapes. A request names its model in `modelId`, which is a part of the path in
HTTP: whoever has only the body adds it. Bytes are base64, as in the body; `to_sdk_arguments` makes them what
boto3 takes.
"""

from __future__ import annotations

from lamina.core.repair import Repairs
from lamina.dialects.bedrock_converse.answers import absorb, absorb_stream, write_answer, write_closing_events
from lamina.dialects.bedrock_converse.blocks import ID_PATTERN, NAME, to_sdk_arguments
from lamina.dialects.bedrock_converse.cache_view import count_markers, mark, stream
from lamina.dialects.bedrock_converse.check import check
from lamina.dialects.bedrock_converse.head import HEAD
from lamina.dialects.bedrock_converse.parse import parse
from lamina.dialects.bedrock_converse.render import carries, lasting, render
from lamina.dialects.port import Answers, CacheView, Dialect, HeadShape, Markers, Wire
from lamina.dialects.recognition import make_recogniser
from lamina.dialects.words import OPENING

__all__ = ["DIALECT", "render", "to_sdk_arguments"]

DIALECT = Dialect(
    name=NAME,
    recognises=make_recogniser(NAME),
    wire=Wire(
        parse=parse,
        render=render,
        check=check,
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
