"""Measures `nmt serve` and holds it to what it promises. Prints a table.

python -m recipes.benchmarks.serve --model MODEL --text FILE [PART ...]

PART is one of equality, throughput, latency, lists, memory, bodies, overload, worker and signal; all of them
where none is named. The clients run on the same machine, and take their share of its processors.
"""

import asyncio
import itertools
import json
import os
import platform
import random
import re
import resource
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

import click
import numpy as np

from recipes.benchmarks.serving_client import Answer, Connection, Server, clients, random_body, server

Row = tuple[str, str, str]
"""What was asked, what was measured, and whether that is enough."""

CLIENTS = 64
LIST = 64
SHORT = 8
"""Words, at most, of a short sentence."""

LONGEST = 4
"""Times what the queue takes without overload, for all but one request in twenty."""

OVERLOAD_WAITING = 256


@dataclass(frozen=True)
class Bench:
    """What all parts need."""

    model: Path
    lines: Sequence[str]
    threads: int
    requests: int
    minutes: float

    @property
    def short(self) -> Sequence[str]:
        """Lines of few words."""
        return [line for line in self.lines if len(line.split()) <= SHORT] or self.lines

    def fields(self, q: object, **more: object) -> dict[str, Any]:
        """Of a request."""
        return {"q": q, "source": "auto", "target": self.target, **more}

    @property
    def target(self) -> str:
        """The language of the model."""
        return str(json.loads((self.model / "config.json").read_text())["languages"]["target"])

    def translated(self, lines: Sequence[str], *options: str) -> tuple[bytes, float, float]:
        """What `nmt translate` writes, its lines a second, and its seconds of processors."""
        command = [sys.executable, "-m", "nmt_cli", "translate", str(self.model), "--device", "cpu"]
        command += ["--threads", str(self.threads), "--set", "input.sentences=split", *options]
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        text = "".join(f"{line}\n" for line in lines).encode()
        done = subprocess.run(command, input=text, capture_output=True, check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        last = done.stderr.decode().strip().splitlines()[-1]
        rate = float(last.split(" a second")[0].rsplit(" ", 1)[-1].replace(",", ""))
        seconds = sum(getattr(after, name) - getattr(before, name) for name in ("ru_utime", "ru_stime"))
        return done.stdout, rate, seconds


async def all_of(server: Server, count: int, bodies: Sequence[Any]) -> tuple[list[Answer], list[float]]:
    """The answers to all of these, sent by so many clients, and how long each took."""
    answers: list[Answer | None] = [None] * len(bodies)
    seconds = [0.0] * len(bodies)
    numbers = iter(range(len(bodies)))

    async def work(connection: Connection) -> None:
        for number in numbers:
            began = time.perf_counter()
            answers[number] = await connection.post("/translate", bodies[number])
            seconds[number] = time.perf_counter() - began

    await clients(count, server, work)
    return [answer for answer in answers if answer], seconds


def equality(bench: Bench) -> Iterator[Row]:
    """Line for line what the command writes, whoever else is there."""
    lines = bench.lines[:1024]
    best = bench.translated(lines)[0].decode().split("\n")[:-1]
    lists = bench.translated(lines, "--n-best", "3", "--format", "json")[0].decode().splitlines()
    others = [[one["text"] for one in json.loads(line)["hypotheses"]] for line in lists]
    kinds: list[dict[str, Any]] = [{}, {"stream": True}, {"alternatives": 2}, {"format": "text"}]
    bodies = [bench.fields(line, **kinds[number % 4]) for number, line in enumerate(lines)]
    with server([bench.model], bench.threads) as served:
        answers, _ = asyncio.run(all_of(served, CLIENTS, bodies))
        groups = [[*range(start, min(start + 16, len(lines)))] for start in range(0, len(lines), 16)]
        whole, _ = asyncio.run(all_of(served, CLIENTS, [bench.fields([lines[i] for i in g]) for g in groups]))
    wrong = 0
    for number, answer in enumerate(answers):
        events = answer.body.decode().strip().split("\n\n")
        found = json.loads(events[-1].removeprefix("data: ")) if number % 4 == 1 else answer.json()
        if number % 4 == 2:
            first, *rest = others[number]
            kept = [text for text in dict.fromkeys(rest) if text and text != first]
            wrong += found.get("translatedText") != first or found.get("alternatives") != kept
        else:
            wrong += found.get("translatedText") != best[number]
    for group, answer in zip(groups, whole, strict=True):
        wrong += sum(a != best[i] for a, i in zip(answer.json()["translatedText"], group, strict=True))
    told = (
        f"{wrong} of {2 * len(lines):,} lines differ, {CLIENTS} clients: texts, lists, streams, alternatives"
    )
    yield "equal to nmt translate line for line", told, verdict(not wrong)


def throughput(bench: Bench) -> Iterator[Row]:
    """Lines a second against the batch command, in turns."""
    lines = bench.lines
    _, _, loading = bench.translated(lines[:1])
    rates: dict[str, list[float]] = {"command": [], "server": []}
    costs: dict[str, list[float]] = {"command": [], "server": []}
    lists = [bench.fields(list(lines[i : i + LIST])) for i in range(0, len(lines), LIST)]
    with server([bench.model], bench.threads, "server.most_waiting=1000000") as served:
        asyncio.run(all_of(served, CLIENTS, lists[:4]))
        for _ in range(3):
            _, rate, seconds = bench.translated(lines)
            rates["command"].append(rate)
            costs["command"].append(seconds - loading)
            began, before = time.perf_counter(), served.seconds
            asyncio.run(all_of(served, CLIENTS, lists))
            rates["server"].append(len(lines) / (time.perf_counter() - began))
            costs["server"].append(served.seconds - before)
    ours, theirs = (statistics.median(rates[name]) for name in ("server", "command"))
    cost, cheaper = (statistics.median(costs[name]) for name in ("server", "command"))
    told = (
        f"{100 * ours / theirs:.0f} % ({ours:,.0f} against {theirs:,.0f} lines/s, {len(lines):,} lines in "
        f"lists of {LIST}); by seconds of processors {100 * cheaper / cost:.0f} % ({cost:.1f} against "
        f"{cheaper:.1f})"
    )
    yield "throughput >= 90 % of the batch command", told, verdict(ours >= 0.9 * theirs)


def capacity(bench: Bench, served: Server) -> float:
    """Single short requests a second that it bears."""
    bodies = [bench.fields(line) for line in itertools.islice(itertools.cycle(bench.short), 600)]
    asyncio.run(all_of(served, CLIENTS, bodies[:100]))
    began = time.perf_counter()
    asyncio.run(all_of(served, CLIENTS, bodies))
    return len(bodies) / (time.perf_counter() - began)


def latency(bench: Bench) -> Iterator[Row]:
    """A short sentence alone, and while others come at half the rate that the server bears."""
    with server([bench.model], bench.threads) as served:
        bodies = [bench.fields(line) for line in itertools.islice(itertools.cycle(bench.short), 200)]
        bears = capacity(bench, served)
        _, idle = asyncio.run(all_of(served, 1, bodies))
        _, loaded, _ = asyncio.run(arriving(bench, served, bears / 2, seconds=20))
    p50, p95 = (float(np.percentile(idle, q)) for q in (50, 95))
    half = float(np.percentile(loaded, 95))
    told = (
        f"p95 {1000 * half:.0f} ms at {bears / 2:.0f} requests/s; idle p50 {1000 * p50:.0f} ms, p95 "
        f"{1000 * p95:.0f} ms: {half / p95:.2f} x the idle p95, {half / p50:.2f} x the idle median"
    )
    yield "p95 at half load < 2 x idle", told, verdict(half < 2 * p95)


async def arriving(
    bench: Bench, served: Server, rate: float, seconds: float
) -> tuple[Counter[str], list[float], float]:
    """Requests that come when they come, however slow the answers: what came back, how long the accepted ones
    took, and how many seconds the last took to be answered."""
    chosen, found, took = random.Random(1), Counter[str](), list[float]()
    free: list[Connection] = []

    async def one(line: str) -> None:
        connection = free.pop() if free else Connection(served)
        began = time.perf_counter()
        try:
            answer = await connection.post("/translate", bench.fields(line))
        except ConnectionError:
            found["no answer"] += 1
            return
        found[str(answer.status)] += 1
        if answer.status == 200:
            took.append(time.perf_counter() - began)
        free.append(connection)

    end, tasks = time.perf_counter() + seconds, []
    due = time.perf_counter()
    while (now := time.perf_counter()) < end:
        while due <= now:
            tasks.append(asyncio.create_task(one(chosen.choice(bench.short))))
            due += chosen.expovariate(rate)
        await asyncio.sleep(max(0.0, min(due, end) - time.perf_counter()))
    await asyncio.gather(*tasks)
    return found, took, time.perf_counter() - end


def lists(bench: Bench) -> Iterator[Row]:
    """Lists against one text after another by CTranslate2, as Argos Translate does it with our export."""
    import ctranslate2

    from nmt_cli.text.subword_models.pieces import Pieces

    texts = list(bench.lines[:LIST])
    with tempfile.TemporaryDirectory() as folder:
        exported = Path(folder) / "ct2"
        command = [sys.executable, "-m", "nmt_cli", "export", str(bench.model), "--out", str(exported)]
        subprocess.run([*command, "--format", "ctranslate2"], check=True, capture_output=True)
        # One thread: beside other work, more of them take ten to a hundred times as long.
        theirs = ctranslate2.Translator(str(exported), inter_threads=1, intra_threads=1)
        source, target = (Pieces((exported / name).read_bytes()) for name in ("source.spm", "target.spm"))
        loop, ours, costs = [], [], []
        with server([bench.model], bench.threads) as served:
            for _ in range(4):
                began, before = time.perf_counter(), (time.process_time(), served.seconds)
                for text in texts:
                    pieces = [source.shown(text)]
                    (found,) = theirs.translate_batch(pieces, beam_size=4, length_penalty=0.2)
                    target.text_of(found.hypotheses[0])
                loop.append(time.perf_counter() - began)
                theirs_took = time.process_time() - before[0]
                ours += asyncio.run(all_of(served, 1, [bench.fields(texts)]))[1]
                costs.append((theirs_took, served.seconds - before[1]))
    times = statistics.median(loop[1:]) / statistics.median(ours[1:])
    loops, servers = (statistics.median(each) for each in zip(*costs[1:], strict=True))
    told = (
        f"{times:.2f} x ({statistics.median(ours[1:]):.2f} s against {statistics.median(loop[1:]):.2f} s); "
    )
    told += f"by seconds of processors {loops / servers:.2f} x ({servers:.2f} against {loops:.2f})"
    yield f"lists of {LIST} >= 3 x a loop over CTranslate2", told, verdict(times >= 3)


def memory(bench: Bench) -> Iterator[Row]:
    """Whether memory grows with the number of requests."""
    seen: list[tuple[int, int]] = []
    with server([bench.model], bench.threads) as served:
        each = max(1, bench.requests // 50)
        for done in range(0, bench.requests, each):
            lines = itertools.islice(itertools.cycle(bench.short), done, done + each)
            answers, _ = asyncio.run(all_of(served, CLIENTS, [bench.fields(line) for line in lines]))
            assert all(answer.status == 200 for answer in answers)
            seen.append((done + each, served.kilobytes))
    later = seen[len(seen) // 2 :]
    slope = float(np.polyfit([done for done, _ in later], [size for _, size in later], 1)[0])
    marks = [f"{size / 1024:.1f} MB after {done:,}" for done, size in (seen[0], later[0], seen[-1])]
    told = f"{', '.join(marks)}; second half: {1000 * slope:+.1f} kB a 1,000 requests"
    yield f"{bench.requests:,} requests with flat memory", told, verdict(1000 * slope < 20)


def bodies(bench: Bench) -> Iterator[Row]:
    """Random bodies: none is a fault of ours."""
    chosen, found = random.Random(1), Counter[int]()
    paths = ("/translate", "/detect", "/v2/translate", "/v1/chat/completions", "/align", "/attention")
    kinds = ("application/json", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "x")

    async def work(connection: Connection) -> None:
        for _ in range(10_000 // 16):
            body = random_body(chosen)
            path, kind = chosen.choice(paths), chosen.choice(kinds)
            found[(await connection.send("POST", path, body, kind)).status] += 1

    with server([bench.model], bench.threads) as served:
        asyncio.run(clients(16, served, work))
        said = len(served.log.read_text().splitlines())
    told = ", ".join(f"{status}: {count:,}" for status, count in sorted(found.items()))
    told += f"; {said} line on the server's stderr"
    yield "10,000 random bodies without a 500", told, verdict(not any(status >= 500 for status in found))


def overload(bench: Bench) -> Iterator[Row]:
    """Twice what it bears: each request is answered, and what is accepted is answered in time."""
    with server([bench.model], bench.threads, f"server.most_waiting={OVERLOAD_WAITING}") as served:
        bears = capacity(bench, served)
        found, took, last = asyncio.run(arriving(bench, served, 2 * bears, 60 * bench.minutes))
        told = asyncio.run(Connection(served).send("GET", "/metrics")).body.decode()
    buckets = re.findall(r'seconds_bucket\{route="/translate",le="(.*?)"\} (\d+)', told)
    within = next(bound for bound, count in buckets if count == buckets[-1][1])
    counts = ", ".join(f"{status}: {count:,}" for status, count in sorted(found.items()))
    p50, p95, most = (float(np.percentile(took, q)) for q in (50, 95, 100))
    bound = OVERLOAD_WAITING / bears
    told = (
        f"{bench.minutes:g} min at {2 * bears:.0f}/s (it bears {bears:.0f}/s, {OVERLOAD_WAITING} may wait): "
        f"{counts}; accepted p50 {p50:.2f} s, p95 {p95:.2f} s, longest {most:.2f} s "
        f"({OVERLOAD_WAITING} sentences take {bound:.2f} s), by the server's clock all within "
        f"{within} s; the last answer {last:.2f} s after the end"
    )
    good = set(found) <= {"200", "429"} and p95 < LONGEST * bound
    yield "2 x overload: all answered, accepted in bounded time", told, verdict(good)


def worker(bench: Bench) -> Iterator[Row]:
    """A worker killed in the middle: its sentences are translated by another."""
    lines = bench.lines[:2048]
    best = bench.translated(lines)[0].decode().split("\n")[:-1]
    lists = [bench.fields(list(lines[i : i + 16])) for i in range(0, len(lines), 16)]

    async def killed(served: Server) -> list[Answer]:
        asked = asyncio.create_task(all_of(served, 16, lists))
        for _ in range(2):
            await asyncio.sleep(0.5)
            os.kill(served.workers[0], signal.SIGKILL)
        return (await asked)[0]

    with server([bench.model], max(2, bench.threads)) as served:
        answers = asyncio.run(killed(served))
        alive = len(served.workers)
    found = [text for answer in answers for text in answer.json().get("translatedText", [])]
    wrong = sum(ours != theirs for ours, theirs in zip(found, best, strict=False))
    wrong += abs(len(found) - len(best))
    told = f"two killed under load: {wrong} of {len(best):,} lines differ; {alive} workers at the end"
    yield "a worker killed with SIGKILL: translated again by another", told, verdict(not wrong)


def ended(bench: Bench) -> Iterator[Row]:
    """SIGTERM under load: what was taken in is answered."""
    found = Counter[str]()

    async def asking(served: Server) -> None:
        async def work(connection: Connection) -> None:
            for line in itertools.cycle(bench.short):
                try:
                    answer = await connection.post("/translate", bench.fields(line))
                    found[str(answer.status)] += 1
                except (ConnectionError, OSError):
                    found["not taken in"] += 1
                    return

        asked = asyncio.create_task(clients(CLIENTS, served, work))
        await asyncio.sleep(5)
        served.process.terminate()
        await asked

    with server([bench.model], bench.threads) as served:
        asyncio.run(asking(served))
        code = served.process.wait()
        said = served.log.read_text()
    counted = int(said.split(" requests were answered")[0].splitlines()[-1].replace(",", ""))
    lost = counted - found["200"]
    told = (
        f"exit code {code}; the server answered {counted:,}, its {CLIENTS} clients got {found['200']:,}: "
        f"{lost} lost; {found['not taken in']} saw their connection end without an answer begun"
    )
    yield "SIGTERM under load loses nothing that was accepted", told, verdict(not lost and not code)


PARTS: dict[str, Callable[[Bench], Iterator[Row]]] = {
    "equality": equality,
    "throughput": throughput,
    "latency": latency,
    "lists": lists,
    "memory": memory,
    "bodies": bodies,
    "overload": overload,
    "worker": worker,
    "signal": ended,
}


def verdict(holds: bool) -> str:
    """In the table."""
    return "yes" if holds else "**no**"


@click.command()
@click.argument("parts", nargs=-1, type=click.Choice(list(PARTS)))
@click.option("--model", type=click.Path(path_type=Path), required=True, help="A model folder.")
@click.option("--text", type=click.Path(path_type=Path), required=True, help="Lines of its source language.")
@click.option("--lines", default=4096, help="Lines of the text that are taken.")
@click.option("--threads", default=2, help="Workers of the server.")
@click.option("--requests", default=50_000, help="Of memory.")
@click.option("--minutes", default=5.0, help="Of overload.")
def main(
    parts: Sequence[str], model: Path, text: Path, lines: int, threads: int, requests: int, minutes: float
) -> None:
    """Print the table."""
    given = text.read_text("utf-8").splitlines()
    bench = Bench(model, [*itertools.islice(itertools.cycle(given), lines)], threads, requests, minutes)
    load = os.getloadavg()[0]
    print(f"{date.today()}, {os.cpu_count()} cores, {platform.machine()}, load {load:.1f} at the beginning\n")
    print("| asked | measured | holds |\n|---|---|---|", flush=True)
    for part in parts or PARTS:
        for row in PARTS[part](bench):
            print(f"| {' | '.join(row)} |", flush=True)


if __name__ == "__main__":
    main()
