"""LibreTranslate's interface: what its clients send, and what they want back."""

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from typing import Any

from starlette.responses import JSONResponse, Response

from nmt_cli.serving.apis.answers import EventStream, as_json
from nmt_cli.serving.apis.bodies import Fields, shown
from nmt_cli.serving.config import MAX_ALTERNATIVES
from nmt_cli.serving.directions import Direction, name_of
from nmt_cli.serving.refused import Refused
from nmt_cli.serving.texts.documents import Documents, Made, Wanted
from nmt_cli.serving.translating import Desk
from nmt_cli.translation.translator import Translation

AUTO = "auto"
Guess = tuple[str, float]
"""A language and how likely a text is in it."""


def shape(refused: Refused) -> Mapping[str, Any]:
    """What is wrong."""
    return {"error": refused.told}


async def translate(desk: Desk, fields: Fields) -> Response:
    """`POST /translate`; with `stream`, each sentence is an event, and the answer is the last one."""
    several = isinstance(fields.values.get("q"), list)
    texts = fields.texts("q")
    source, target = fields.text("source"), fields.text("target")
    alternatives = fields.whole("alternatives", MAX_ALTERNATIVES)
    markup = fields.chosen("format", ("text", "html")) == "html"
    direction, guess = await found(desk, source, target, texts)
    wanted = Wanted(direction, texts, alternatives, markup)
    if fields.yes("stream"):
        documents = await desk.documents(wanted)
        return EventStream(desk, _events(desk, documents, several, guess), shape)
    return JSONResponse(_answer(await desk.translated(wanted), several, alternatives, guess))


async def detect(desk: Desk, fields: Fields) -> Response:
    """`POST /detect`: the languages, the likeliest first."""
    texts = fields.texts("q")
    desk.bounded(texts)
    likely = [guess for guess in await desk.detected(texts) if guess[1] > 0]
    return JSONResponse([_guessed(*guess) for guess in likely or [(desk.directions.first.source, 0.0)]])


async def languages(desk: Desk, _: Fields) -> Response:
    """`GET /languages`: each with what it is translated into."""
    served = desk.directions
    return JSONResponse(
        [{"code": one, "name": name_of(one), "targets": served.targets(one)} for one in served.languages]
    )


def settings(desk: Desk, needs_key: bool) -> Mapping[str, Any]:
    """`GET /frontend/settings`: what a page in front of the server wants to know."""
    first = desk.directions.first
    return {
        "apiKeys": needs_key,
        "keyRequired": needs_key,
        "charLimit": desk.config.most_characters,
        "alternativesLimit": MAX_ALTERNATIVES,
        "frontendTimeout": 500,
        "suggestions": False,
        "filesTranslation": False,
        "supportedFilesFormat": [],
        "language": {
            "source": {"code": first.source, "name": name_of(first.source)},
            "target": {"code": first.target, "name": name_of(first.target)},
        },
    }


async def found(desk: Desk, source: str, target: str, texts: Sequence[str]) -> tuple[Direction, Guess | None]:
    """Which way to translate; of texts in a language that is to be guessed, also the guess."""
    served = desk.directions
    for language in (source, target):
        if language != AUTO and not served.known(language):
            offered = ", ".join(served.languages)
            raise Refused(400, f"{shown(language)} is not supported; there are {offered}.")
    guess = None
    if source == AUTO:
        sources = served.into(target)
        desk.bounded(texts)
        ranked = await desk.detected(texts) if len(sources) else []
        guess = next((one for one in ranked if one[0] in sources), (source, 0.0))
        source = guess[0]
    if direction := served.find(source, target):
        return direction, guess
    offered = ", ".join(served.targets(served.known(source) or "")) or "nothing"
    raise Refused(400, f"{shown(source)} is not translated into {shown(target)}, but into {offered}.")


def _answer(made: Sequence[Made], several: bool, alternatives: int, guess: Guess | None) -> Mapping[str, Any]:
    answer: dict[str, Any] = {"translatedText": [one.text for one in made]}
    if guess:
        answer["detectedLanguage"] = [_guessed(*guess)] * len(made)
    if alternatives:
        answer["alternatives"] = [[*one.alternatives] for one in made]
    return answer if several else {name: values[0] for name, values in answer.items()}


def _guessed(language: str, probability: float) -> Mapping[str, Any]:
    return {"confidence": round(100 * probability, 1), "language": language}


async def _events(
    desk: Desk, documents: Documents, several: bool, guess: Guess | None
) -> AsyncGenerator[str]:
    translations: list[Translation] = []
    async with aclosing(desk.stream(documents)) as stream:
        async for translation in stream:
            number = len(translations)
            translations.append(translation)
            yield as_json(
                {
                    "sentence": number,
                    "source": documents.sentences[number],
                    "translatedText": translation.text,
                    "blanks": documents.blanks[number],
                }
            )
    made = documents.made(translations)
    yield as_json(_answer(made, several, documents.wanted.alternatives, guess))
