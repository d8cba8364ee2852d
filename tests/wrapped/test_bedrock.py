"""AWS's own client, wrapped: every request is fitted, recalls are answered, streams stay streams."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import botocore.session
import pytest
from botocore import UNSIGNED
from botocore.config import Config
from botocore.exceptions import ClientError

from lamina import Policy, wrap
from lamina.core.values import Budget
from lamina.dialects.bedrock_converse import DIALECT
from lamina.wrapped import conversation, last_fitted
from tests.dialects.bedrock_requests import MODEL, PIXEL, TOOL, Json, refusals, says, user
from tests.gateway.test_bedrock_recall import (
    FACT,
    Reply,
    Script,
    check_requests,
    converse_server,
    join_events,
    long_history,
    recall_once,
)

POLICY = Policy(budget=Budget(window=4_000, reserve=300), breakpoints="keep")


def make_client(url: str, **options: Any) -> Any:
    client = botocore.session.get_session().create_client(
        "bedrock-runtime",
        region_name="us-east-1",
        endpoint_url=url,
        config=Config(signature_version=UNSIGNED, retries={"max_attempts": 1}),
    )
    return wrap(client, policy=POLICY, **options)


def ask(client: Any, messages: list[Json], *, streams: bool) -> Reply:
    arguments: Json = {"modelId": MODEL, "messages": messages, "toolConfig": {"tools": [TOOL]}}
    if not streams:
        answer = client.converse(**arguments)
        return Reply(answer["output"]["message"]["content"], answer["stopReason"], answer["usage"])
    answer = client.converse_stream(**arguments)
    assert answer["ResponseMetadata"]["HTTPStatusCode"] == 200
    with_events = answer["stream"]
    events = list(with_events)
    with_events.close()
    return join_events(events)


@pytest.mark.parametrize("streams", [False, True])
def test_a_recall_is_answered_inside_one_call_and_the_conversation_goes_on_from_a_store(
    tmp_path: Path, *, streams: bool
) -> None:
    history = long_history()
    store = str(tmp_path / "chats.db")
    with converse_server(recall_once) as server:
        client = make_client(server.url, store=store)
        reply = ask(client, history, streams=streams)
        assert reply.text == f"It says: {FACT}"
        assert reply.stop == "end_turn"
        fitted = last_fitted(client)
        assert fitted is not None
        assert len(fitted.ledger.cuts) == 1
        history += [says(*reply.content), user({"text": "Thanks."})]
        reply = ask(make_client(server.url, store=store), history, streams=streams)
        assert reply.text == "Fine."
    assert len(server.requests) == 3
    check_requests(server.requests)


@pytest.mark.parametrize("streams", [False, True])
def test_a_request_that_fits_is_sent_as_it_came(*, streams: bool) -> None:
    messages = [user({"text": "What is it?"}, {"image": {"format": "png", "source": {"bytes": b"\x89PNG"}}})]
    with converse_server(lambda _: [{"text": "A pixel."}]) as server:
        client = make_client(server.url)
        assert ask(client, messages, streams=streams).text == "A pixel."
        fitted = last_fitted(client)
        assert fitted is not None
        assert fitted.request["messages"] == server.requests[0]["messages"]
    assert server.requests[0]["messages"][0]["content"][1]["image"]["source"] == {"bytes": "iVBORw=="}
    assert server.requests[0]["toolConfig"] == {"tools": [TOOL]}


def test_bytes_of_a_long_conversation_are_encoded_once() -> None:
    history = long_history()
    history[0]["content"].append({"image": {"format": "png", "source": {"bytes": b"\x89PNG\r\n\x1a\n"}}})
    history[-1]["content"].append({"image": {"format": "png", "source": {"bytes": b"\x89PNG\r\n\x1a\n"}}})
    with converse_server(lambda _: [{"text": "Fine."}]) as server:
        ask(make_client(server.url), history, streams=False)
    [request] = server.requests
    assert request["messages"][-1]["content"][-1]["image"]["source"] == {"bytes": PIXEL}
    assert refusals({"modelId": MODEL, **request}) == ""


def too_long_once() -> Script:
    answers = iter([True])

    def script(_: Json) -> list[Json]:
        if next(answers, False):
            raise TooLong
        return [{"text": "Fine."}]

    return script


class TooLong(Exception):
    """The server answers with the error of a request that is too long."""


@pytest.mark.parametrize("streams", [False, True])
def test_a_request_that_bedrock_calls_too_long_is_cut_deeper_and_sent_again(*, streams: bool) -> None:
    error = {"message": "Input is too long for requested model.", "__type": "ValidationException"}
    with converse_server(too_long_once(), failures={TooLong: (400, error)}) as server:
        client = make_client(server.url)
        assert ask(client, long_history(), streams=streams).text == "Fine."
    first, second = server.requests
    assert len(json.dumps(second)) < len(json.dumps(first))
    assert DIALECT.wire.check({"modelId": MODEL, **second}) == []


def test_other_errors_are_the_callers() -> None:
    def script(_: Json) -> list[Json]:
        raise TooLong

    error = {"message": "The model is not ready.", "__type": "ModelNotReadyException"}
    with converse_server(script, failures={TooLong: (429, error)}) as server:
        client = conversation(make_client(server.url), "support")
        with pytest.raises(ClientError):
            ask(client, long_history(), streams=False)
        assert client.meta.service_model.service_name == "bedrock-runtime"
