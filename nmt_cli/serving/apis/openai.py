"""OpenAI's chat API. The server answers a message with its translation."""

import time
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from typing import Any
from uuid import uuid4

from starlette.responses import JSONResponse, Response

from nmt_cli.serving.apis.answers import EventStream, as_json
from nmt_cli.serving.apis.bodies import Fields, clean, shown
from nmt_cli.serving.directions import Direction
from nmt_cli.serving.documents import Documents, TranslationRequest
from nmt_cli.serving.refused import Refused
from nmt_cli.serving.service import Service
from nmt_cli.text.model_languages import listed
from nmt_cli.translation.lines import Translation

DONE = "[DONE]"


def error_body(refused: Refused) -> Mapping[str, Any]:
    """Return the JSON body for an error in the format of OpenAI, a "server_error" from status 500 on."""
    kind = "server_error" if refused.status >= 500 else "invalid_request_error"
    return {"error": {"message": refused.message, "type": kind, "param": None, "code": None}}


async def complete(service: Service, fields: Fields) -> Response:
    """Answer `POST /v1/chat/completions` with the translation of the last user message. If the field `stream`
    is true, the answer is events.

    The field `model` is a direction such as "en-de", or a model folder. Raise `Refused` for wrong fields
    (400), an unknown model (404), too much text (413), a busy server (429), or a failure (503).
    """
    name, text = fields.text("model"), _last_message(fields)
    if fields.values.get("glossary"):
        raise Refused(400, "glossary is not supported here. Use POST /translate or /v2/translate.")
    # A missing n is 0.
    if fields.whole("n", 1) not in (0, 1):
        raise Refused(400, "n must be 1.")
    request = TranslationRequest(_direction(service, name), [text])
    created = {"id": f"chatcmpl-{uuid4().hex}", "created": int(time.time())}
    if fields.yes("stream"):
        options = fields.values.get("stream_options")
        with_usage = isinstance(options, dict) and Fields(options).yes("include_usage")
        head = {**created, "object": "chat.completion.chunk", "model": name}
        documents = await service.documents(request)  # a refusal has a status only before the response starts
        return EventStream(service, _chunks(service, documents, head, with_usage), error_body)
    (translated,), translations = await service.translate(request)
    message = {"role": "assistant", "content": translated.text}
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": "stop"}
    if fields.yes("confidence"):
        choice["confidence"] = round(translated.confidence, 4)
    head = {**created, "object": "chat.completion", "model": name}
    return JSONResponse({**head, "choices": [choice], "usage": _usage(translations)})


async def models(service: Service, _: Fields) -> Response:
    """Answer `GET /v1/models` with the names of all models and directions, as a list of model objects."""
    return JSONResponse({"object": "list", "data": [_described(name) for name in service.directions.listed]})


async def model(service: Service, fields: Fields) -> Response:
    """Answer `GET /v1/models/NAME` with the model object. Raise `Refused` (404) for an unknown name."""
    name = fields.text("model")
    _direction(service, name)
    return JSONResponse(_described(name))


def _described(name: str) -> Mapping[str, Any]:
    return {"id": name, "object": "model", "created": 0, "owned_by": "nmt"}


def _direction(service: Service, name: str) -> Direction:
    """Return the direction called `name`, or of the model called `name`. Else raise `Refused` (404)."""
    if not (direction := service.directions.named.get(name)):
        offered = listed(service.directions.listed)
        raise Refused(404, f"There is no model {shown(name)}. Models: {offered}.")
    return direction


def _usage(translations: Sequence[Translation]) -> Mapping[str, int]:
    """Return counts of source tokens, translation tokens and both. With a pivot, count the last model."""
    read = sum(one.line.pieces for one in translations)
    written = sum(len(one.candidates[0].tokens) for one in translations if one.candidates)
    return {"prompt_tokens": read, "completion_tokens": written, "total_tokens": read + written}


def _last_message(fields: Fields) -> str:
    """Return the text of the last message with the role "user". If it has parts, its text parts are joined,
    and others are ignored.

    Raise `Refused` (400) if `messages` is not a list of objects, or has no such message with text.
    """
    messages = fields.values.get("messages")
    if not isinstance(messages, list) or not all(isinstance(one, dict) for one in messages):
        raise Refused(400, "messages must be a list of objects.")
    contents = [one.get("content") for one in messages if one.get("role") == "user"]
    if not contents:
        raise Refused(400, "messages must contain a message with role user.")
    content = contents[-1]
    if isinstance(content, list) and all(isinstance(part, dict) for part in content):
        texts = [part.get("text") for part in content if part.get("type") == "text"]
        content = "".join(text for text in texts if isinstance(text, str))
    if not isinstance(content, str):
        raise Refused(400, "The content of a message must be a text.")
    return clean(content)


async def _chunks(
    service: Service, documents: Documents, head: Mapping[str, Any], with_usage: bool
) -> AsyncGenerator[str]:
    """Yield the events of a streamed answer: a first chunk, one for each sentence, a last chunk and `DONE`.

    head: the fields that all chunks share.
    with_usage: before `DONE`, yield counts of tokens.
    """

    def chunk(delta: Mapping[str, str], end: str | None = None) -> str:
        return as_json({**head, "choices": [{"index": 0, "delta": delta, "finish_reason": end}]})

    yield chunk({"role": "assistant", "content": ""})
    translations: list[Translation] = []
    async with aclosing(service.stream(documents)) as stream:
        async for translation in stream:
            translations.append(translation)
            yield chunk({"content": documents.added([one.text for one in translations])})
    yield chunk({}, "stop")
    if with_usage:
        yield as_json({**head, "choices": [], "usage": _usage(translations)})
    yield DONE
