"""The API of LibreTranslate. In addition, `stream` requests one event per sentence, and `alignment` the links
between words."""

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from typing import Any

from starlette.responses import JSONResponse, Response

from nmt_cli.language import nearest_language
from nmt_cli.serving.apis.answers import EventStream, as_json
from nmt_cli.serving.apis.bodies import Fields, shown
from nmt_cli.serving.apis.glossaries import in_request
from nmt_cli.serving.config import MAX_ALTERNATIVES
from nmt_cli.serving.directions import Direction
from nmt_cli.serving.documents import Documents, TranslatedText, TranslationRequest, alignment
from nmt_cli.serving.refused import Refused
from nmt_cli.serving.service import Service
from nmt_cli.text.markup import Dialect
from nmt_cli.text.model_languages import listed
from nmt_cli.translation.lines import Translation

AUTO = "auto"
Guess = tuple[str, float]
"""A language, and the probability from 0 to 1 that a text is in it."""


def error_body(refused: Refused) -> Mapping[str, Any]:
    """Return the JSON body for an error in the format of LibreTranslate: the field `error`."""
    return {"error": refused.message}


async def translate(service: Service, fields: Fields) -> Response:
    """Answer `POST /translate`. If the field `stream` is true, the answer is events: one for each sentence,
    then the complete response.

    Raise `Refused` for wrong fields or languages (400), too much text (413), a busy server (429), or a failed
    translation (503).
    """
    # The answer to a list has lists, even if the list has one text.
    is_list = isinstance(fields.values.get("q"), list)
    texts = fields.texts("q")
    source, target = fields.text("source"), fields.text("target")
    alternatives = fields.whole("alternatives", MAX_ALTERNATIVES)
    markup: Dialect | None = "html" if fields.chosen("format", ("text", "html")) == "html" else None
    direction, guess = await find_direction(service, source, target, texts)
    request = TranslationRequest(
        direction,
        texts,
        alternatives,
        markup,
        alignment=fields.yes("alignment"),
        glossary=await in_request(service, fields, direction),
    )
    confidence = fields.yes("confidence")
    if fields.yes("stream"):
        # A refusal has a status only before the response starts.
        documents = await service.documents(request)
        return EventStream(service, _events(service, documents, is_list, guess, confidence), error_body)
    translated, _ = await service.translate(request)
    return JSONResponse(_body(request, translated, is_list, guess, confidence))


async def detect(service: Service, fields: Fields) -> Response:
    """Answer `POST /detect` with the possible languages of `q`, likeliest first, with a confidence from 0 to
    100. If no language is possible, answer with the first model's source language and confidence 0."""
    texts = fields.texts("q")
    service.check_size(texts)
    guesses = [guess for guess in await service.detect(texts) if guess[1] > 0]
    return JSONResponse([_detected(*guess) for guess in guesses or [(service.directions.languages[0], 0.0)]])


async def languages(service: Service, _: Fields) -> Response:
    """Answer `GET /languages` with all languages, each with its name and its possible targets."""
    served = service.directions
    return JSONResponse(
        [{"code": one, "name": served.names[one], "targets": served.targets(one)} for one in served.languages]
    )


async def find_direction(
    service: Service, source: str, target: str, texts: Sequence[str]
) -> tuple[Direction, Guess | None]:
    """Return the direction of a request, and the detected language with its probability, or None.

    With the `source` "auto", the likeliest language of `texts` is taken that a model translates into
    `target`. Otherwise nothing is detected. Raise `Refused` for an unknown language or a direction without a
    model (400), and for texts too large to detect (413).
    """
    served = service.directions
    if source != AUTO and (direction := served.find(source, target)):
        return direction, None
    for language in (target,) if source == AUTO else (source, target):
        if not served.resolve(language):
            reason = f"Language {shown(language)} is not supported"
            if nearest := nearest_language(language, served.languages):
                raise Refused(400, f"{reason}: {nearest}")
            raise Refused(400, f"{reason}. Supported: {listed(served.languages)}.")
    guess = None
    if source == AUTO:
        sources = [one for one in served.sources if served.find(one, target)]
        if not sources:
            raise Refused(400, f"No model translates into {shown(target)}. {served.offered(source)}")
        service.check_size(texts)
        # All languages are ranked, so one of them is a source.
        guess = next(one for one in await service.detect(texts) if one[0] in sources)
        source = guess[0]
    if direction := served.find(source, target):
        return direction, guess
    reason = f"No model translates {shown(source)} into {shown(target)}."
    raise Refused(400, f"{reason} {served.offered(source)}")


def _body(
    request: TranslationRequest,
    translated: Sequence[TranslatedText],
    is_list: bool,
    guess: Guess | None,
    with_confidence: bool,
) -> Mapping[str, Any]:
    """Return the body of a response.

    is_list: each field has a list with a value for each text, and otherwise one value.
    guess: the detected language, which is added unless it is None.
    with_confidence: add the confidence, from 0 to 1.

    What `request` asks for, alternatives and alignments, is added too.
    """
    body: dict[str, Any] = {"translatedText": [one.text for one in translated]}
    if guess:
        body["detectedLanguage"] = [_detected(*guess)] * len(translated)
    if request.alternatives:
        body["alternatives"] = [[*one.alternatives] for one in translated]
    if with_confidence:
        body["confidence"] = [round(one.confidence, 4) for one in translated]
    if request.alignment:
        body["alignment"] = [[own._asdict() for own in one.alignments] for one in translated]
    return body if is_list else {name: values[0] for name, values in body.items()}


def _detected(language: str, probability: float) -> Mapping[str, Any]:
    """Return a detected language as JSON data. The confidence is in percent, with one decimal."""
    return {"confidence": round(100 * probability, 1), "language": language}


async def _events(
    service: Service, documents: Documents, is_list: bool, guess: Guess | None, with_confidence: bool
) -> AsyncGenerator[str]:
    """Yield an event as JSON for each sentence, in order, then the complete response of `_body`."""
    translations: list[Translation] = []
    async with aclosing(service.stream(documents)) as stream:
        async for translation in stream:
            number = len(translations)
            translations.append(translation)
            event = {
                "sentence": number,
                "source": documents.sentences[number],
                "translatedText": translation.text,
                "blanks": documents.spaces[number],
            }
            if documents.request.alignment:
                event["alignment"] = alignment(documents.sentences[number], translation)._asdict()
            yield as_json(event)
    translated = await service.joined(documents, translations)
    yield as_json(_body(documents.request, translated, is_list, guess, with_confidence))
