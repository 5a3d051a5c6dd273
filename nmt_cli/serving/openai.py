"""OpenAI's interface, as far as a chat with a translator goes: a message in, its translation out."""

import time
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from typing import Any
from uuid import uuid4

from starlette.responses import JSONResponse, Response

from nmt_cli.serving.answers import EventStream, as_json
from nmt_cli.serving.bodies import Fields, clean, shown
from nmt_cli.serving.documents import Wanted
from nmt_cli.serving.refused import Refused
from nmt_cli.serving.translating import Desk

DONE = "[DONE]"


def shape(refused: Refused) -> Mapping[str, Any]:
    """What is wrong."""
    kind = "server_error" if refused.status >= 500 else "invalid_request_error"
    return {"error": {"message": refused.told, "type": kind, "param": None, "code": None}}


async def complete(desk: Desk, fields: Fields) -> Response:
    """`POST /v1/chat/completions`; the model is a pair of languages, or a model's folder."""
    name, text = fields.text("model"), _last_message(fields)
    if fields.whole("n", 1) not in (0, 1):
        raise Refused(400, "n must be 1.")
    if not (direction := desk.directions.named.get(name)):
        offered = ", ".join(desk.directions.named)
        raise Refused(404, f"there is no model {shown(name)}; there are {offered}.")
    wanted, begun = Wanted(direction, [text]), {"id": f"chatcmpl-{uuid4().hex}", "created": int(time.time())}
    if fields.yes("stream"):
        head = {**begun, "object": "chat.completion.chunk", "model": name}
        return EventStream(desk, _chunks(desk, wanted, head), shape)
    (made,) = await desk.translated(wanted)
    message = {"role": "assistant", "content": made.text}
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": "stop"}
    return JSONResponse({**begun, "object": "chat.completion", "model": name, "choices": [choice]})


async def models(desk: Desk, _: Fields) -> Response:
    """`GET /v1/models`: the names that one may ask for."""
    listed = [
        {"id": name, "object": "model", "created": 0, "owned_by": "nmt"} for name in desk.directions.named
    ]
    return JSONResponse({"object": "list", "data": listed})


def _last_message(fields: Fields) -> str:
    """The text of the last message of a user; where it has several parts, of all of them."""
    messages = fields.values.get("messages")
    if not isinstance(messages, list) or not all(isinstance(one, dict) for one in messages):
        raise Refused(400, "messages must be a list of objects.")
    contents = [one.get("content") for one in messages if one.get("role") == "user"]
    if not contents:
        raise Refused(400, "messages has none whose role is user.")
    content = contents[-1]
    if isinstance(content, list) and all(isinstance(part, dict) for part in content):
        texts = [part.get("text") for part in content if part.get("type") == "text"]
        content = "".join(text for text in texts if isinstance(text, str))
    if not isinstance(content, str):
        raise Refused(400, "the content of a message must be a text.")
    return clean(content)


async def _chunks(desk: Desk, wanted: Wanted, head: Mapping[str, Any]) -> AsyncGenerator[str]:
    """Begin, a chunk a sentence, end; together the chunks are what would come at once."""

    def chunk(delta: Mapping[str, str], end: str | None = None) -> str:
        return as_json({**head, "choices": [{"index": 0, "delta": delta, "finish_reason": end}]})

    documents = await desk.documents(wanted)
    yield chunk({"role": "assistant", "content": ""})
    texts: list[str] = []
    async with aclosing(desk.stream(documents)) as stream:
        async for translation in stream:
            texts.append(translation.text)
            yield chunk({"content": documents.added(texts)})
    yield chunk({}, "stop")
    yield DONE
