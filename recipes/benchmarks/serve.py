"""Measure `nmt serve`, and compare with its promises. Print a table.

python -m recipes.benchmarks.serve --model MODEL --text FILE [PART ...]

PART is one of equality, throughput, latency, lists, memory, overload, worker and signal. The default is all.
The clients run on the same machine and use a part of its processors.
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

from recipes.benchmarks.machine import NMT, method, print_head, print_row
from recipes.benchmarks.serving_client import Answer, Connection, Server, clients, server

Row = tuple[str, str, str]
"""The promise, the measurement, and whether it is enough."""

CLIENTS = 64
LIST = 64
SHORT = 8
"""Maximum words of a short sentence."""

LONGEST = 4
"""The 95th percentile under overload may be this multiple of the time for a full queue."""

OVERLOAD_WAITING = 256


@dataclass(frozen=True)
class Bench:
    """The arguments of all parts."""

    model: Path
    lines: Sequence[str]
    threads: int
    requests: int
    minutes: float

    @property
    def short(self) -> Sequence[str]:
        """Return the lines of few words, or all lines if none is short."""
        return [line for line in self.lines if len(line.split()) <= SHORT] or self.lines

    def fields(self, q: object, **more: object) -> dict[str, Any]:
        """Return the fields of a request to translate `q`, with additional fields `more`."""
        return {"q": q, "source": "auto", "target": self.target, **more}

    @property
    def target(self) -> str:
        """Return the target language of the model."""
        return str(json.loads((self.model / "config.json").read_text())["languages"]["target"])

    def translated(self, lines: Sequence[str], *options: str) -> tuple[bytes, float, float]:
        """Return the output of `nmt translate`, its lines per second, and its processor seconds."""
        command = [*NMT, "translate", str(self.model), "--device", "cpu"]
        command += ["--threads", str(self.threads), "--set", "input.sentences=split", *options]
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        text = "".join(f"{line}\n" for line in lines).encode()
        done = subprocess.run(command, input=text, capture_output=True, check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        last = done.stderr.decode().strip().splitlines()[-1]
        rate = float(last.split(" lines/s")[0].rsplit(" ", 1)[-1].replace(",", ""))
        seconds = sum(getattr(after, name) - getattr(before, name) for name in ("ru_utime", "ru_stime"))
        return done.stdout, rate, seconds


async def all_of(server: Server, count: int, bodies: Sequence[Any]) -> tuple[list[Answer], list[float]]:
    """Send all bodies by `count` clients at once. Return the answers and the seconds of each, in order."""
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
    """Compare translations of simultaneous requests with those of the command."""
    lines = bench.lines[:1024]
    best = bench.translated(lines)[0].decode().split("\n")[:-1]
    lists = bench.translated(lines, "--n-best", "3", "--format", "json")[0].decode().splitlines()
    others = [[one["text"] for one in json.loads(line)["hypotheses"]] for line in lists]
    kinds: list[dict[str, Any]] = [{}, {"alternatives": 2}]
    bodies = [bench.fields(line, **kinds[number % 2]) for number, line in enumerate(lines)]
    with server([bench.model], bench.threads) as served:
        answers, _ = asyncio.run(all_of(served, CLIENTS, bodies))
        groups = [[*range(start, min(start + 16, len(lines)))] for start in range(0, len(lines), 16)]
        whole, _ = asyncio.run(all_of(served, CLIENTS, [bench.fields([lines[i] for i in g]) for g in groups]))
    different = 0
    for number, answer in enumerate(answers):
        result = answer.json()
        if number % 2:
            first, *rest = others[number]
            unlike_first = [text for text in dict.fromkeys(rest) if text and text != first]
            different += result.get("translatedText") != first or result.get("alternatives") != unlike_first
        else:
            different += result.get("translatedText") != best[number]
    for group, answer in zip(groups, whole, strict=True):
        different += sum(a != best[i] for a, i in zip(answer.json()["translatedText"], group, strict=True))
    kinds_of_requests = "texts, lists, alternatives"
    measured = f"{different} of {2 * len(lines):,} lines differ, {CLIENTS} clients: {kinds_of_requests}"
    yield "equal to nmt translate line for line", measured, verdict(not different)


def throughput(bench: Bench) -> Iterator[Row]:
    """Compare lines per second with the batch command, in turns."""
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
    measured = (
        f"{100 * ours / theirs:.0f} % ({ours:,.0f} against {theirs:,.0f} lines/s, {len(lines):,} lines in "
        f"lists of {LIST}); by seconds of processors {100 * cheaper / cost:.0f} % ({cost:.1f} against "
        f"{cheaper:.1f})"
    )
    yield "throughput >= 90 % of the batch command", measured, verdict(ours >= 0.9 * theirs)


def capacity(bench: Bench, served: Server) -> float:
    """Return the requests per second at full load, each with one short line."""
    bodies = [bench.fields(line) for line in itertools.islice(itertools.cycle(bench.short), 600)]
    asyncio.run(all_of(served, CLIENTS, bodies[:100]))
    began = time.perf_counter()
    asyncio.run(all_of(served, CLIENTS, bodies))
    return len(bodies) / (time.perf_counter() - began)


def latency(bench: Bench) -> Iterator[Row]:
    """Time short sentences on an idle server, and at half of its capacity."""
    with server([bench.model], bench.threads) as served:
        bodies = [bench.fields(line) for line in itertools.islice(itertools.cycle(bench.short), 200)]
        rate = capacity(bench, served)
        _, idle = asyncio.run(all_of(served, 1, bodies))
        _, at_half, _ = asyncio.run(arriving(bench, served, rate / 2, seconds=20))
    p50, p95 = (float(np.percentile(idle, q)) for q in (50, 95))
    half = float(np.percentile(at_half, 95))
    measured = (
        f"p95 {1000 * half:.0f} ms at {rate / 2:.0f} requests/s; idle p50 {1000 * p50:.0f} ms, p95 "
        f"{1000 * p95:.0f} ms: {half / p95:.2f} x the idle p95, {half / p50:.2f} x the idle median"
    )
    yield "p95 at half load < 2 x idle", measured, verdict(half < 2 * p95)


async def arriving(
    bench: Bench, served: Server, rate: float, seconds: float
) -> tuple[Counter[str], list[float], float]:
    """Send `rate` requests per second at random times, without waiting for answers. Return the number of each
    status, the seconds of accepted requests, and the seconds from the end to the last answer."""
    draw, statuses, durations = random.Random(1), Counter[str](), list[float]()
    free: list[Connection] = []

    async def one(line: str) -> None:
        connection = free.pop() if free else Connection(served)
        began = time.perf_counter()
        try:
            answer = await connection.post("/translate", bench.fields(line))
        except ConnectionError:
            statuses["no answer"] += 1
            return
        statuses[str(answer.status)] += 1
        if answer.status == 200:
            durations.append(time.perf_counter() - began)
        free.append(connection)

    end, tasks = time.perf_counter() + seconds, []
    due = time.perf_counter()
    while (now := time.perf_counter()) < end:
        while due <= now:
            tasks.append(asyncio.create_task(one(draw.choice(bench.short))))
            due += draw.expovariate(rate)
        await asyncio.sleep(max(0.0, min(due, end) - time.perf_counter()))
    await asyncio.gather(*tasks)
    return statuses, durations, time.perf_counter() - end


def lists(bench: Bench) -> Iterator[Row]:
    """Compare lists with a loop over single texts by CTranslate2, which is how Argos Translate works."""
    import ctranslate2

    from nmt_cli.text.subword_models.pieces import Pieces

    texts = list(bench.lines[:LIST])
    with tempfile.TemporaryDirectory() as folder:
        exported = Path(folder) / "ct2"
        command = [*NMT, "export", str(bench.model), "--out", str(exported)]
        subprocess.run([*command, "--format", "ctranslate2"], check=True, capture_output=True)
        # One thread: beside other work, more threads take ten to a hundred times as long.
        theirs = ctranslate2.Translator(str(exported), inter_threads=1, intra_threads=1)
        files = (exported / name for name in ("source.spm", "target.spm"))
        source, target = (Pieces(file.read_bytes()).processor for file in files)
        loop, ours, costs = [], [], []
        with server([bench.model], bench.threads) as served:
            for _ in range(4):
                began, before = time.perf_counter(), (time.process_time(), served.seconds)
                for text in texts:
                    pieces = [source.encode(text, out_type=str)]
                    (result,) = theirs.translate_batch(pieces, beam_size=4, length_penalty=0.2)
                    target.decode(result.hypotheses[0])
                loop.append(time.perf_counter() - began)
                theirs_took = time.process_time() - before[0]
                ours += asyncio.run(all_of(served, 1, [bench.fields(texts)]))[1]
                costs.append((theirs_took, served.seconds - before[1]))
    times = statistics.median(loop[1:]) / statistics.median(ours[1:])
    loops, servers = (statistics.median(each) for each in zip(*costs[1:], strict=True))
    measured = (
        f"{times:.2f} x ({statistics.median(ours[1:]):.2f} s against {statistics.median(loop[1:]):.2f} s); "
    )
    measured += f"by seconds of processors {loops / servers:.2f} x ({servers:.2f} against {loops:.2f})"
    yield f"lists of {LIST} >= 3 x a loop over CTranslate2", measured, verdict(times >= 3)


def memory(bench: Bench) -> Iterator[Row]:
    """Measure how memory grows with the number of requests."""
    seen: list[tuple[int, float]] = []
    with server([bench.model], bench.threads) as served:
        each = max(1, bench.requests // 50)
        for done in range(0, bench.requests, each):
            lines = itertools.islice(itertools.cycle(bench.short), done, done + each)
            answers, _ = asyncio.run(all_of(served, CLIENTS, [bench.fields(line) for line in lines]))
            assert all(answer.status == 200 for answer in answers)
            seen.append((done + each, served.megabytes))
    later = seen[len(seen) // 2 :]
    slope = 1e6 * float(np.polyfit([done for done, _ in later], [size for _, size in later], 1)[0])
    marks = [f"{size:.1f} MB after {done:,}" for done, size in (seen[0], later[0], seen[-1])]
    measured = f"{', '.join(marks)}; second half: {slope:+.1f} kB per 1,000 requests"
    yield f"{bench.requests:,} requests with flat memory", measured, verdict(slope < 20)


def overload(bench: Bench) -> Iterator[Row]:
    """Send twice the capacity. Each request must get an answer, and accepted requests in time."""
    with server([bench.model], bench.threads, f"server.most_waiting={OVERLOAD_WAITING}") as served:
        rate = capacity(bench, served)
        statuses, durations, last = asyncio.run(arriving(bench, served, 2 * rate, 60 * bench.minutes))
        measured = asyncio.run(Connection(served).send("GET", "/metrics")).body.decode()
    buckets = re.findall(r'seconds_bucket\{le="(.*?)",route="/translate"\} (\S+)', measured)
    within = next(bound for bound, count in buckets if count == buckets[-1][1])
    counts = ", ".join(f"{status}: {count:,}" for status, count in sorted(statuses.items()))
    p50, p95, most = (float(np.percentile(durations, q)) for q in (50, 95, 100))
    bound = OVERLOAD_WAITING / rate
    measured = (
        f"{bench.minutes:g} min at {2 * rate:.0f}/s (capacity {rate:.0f}/s, {OVERLOAD_WAITING} may wait): "
        f"{counts}; accepted p50 {p50:.2f} s, p95 {p95:.2f} s, longest {most:.2f} s "
        f"({OVERLOAD_WAITING} sentences take {bound:.2f} s), by the server's clock all within "
        f"{within} s; the last answer {last:.2f} s after the end"
    )
    good = set(statuses) <= {"200", "429"} and p95 < LONGEST * bound
    yield "2 x overload: all answered, accepted in bounded time", measured, verdict(good)


def worker(bench: Bench) -> Iterator[Row]:
    """Kill workers under load. Other workers must translate the sentences."""
    lines = bench.lines[:2048]
    best = bench.translated(lines)[0].decode().split("\n")[:-1]
    lists = [bench.fields(list(lines[i : i + 16])) for i in range(0, len(lines), 16)]

    async def killed(served: Server) -> list[Answer]:
        sending = asyncio.create_task(all_of(served, 16, lists))
        for _ in range(2):
            await asyncio.sleep(0.5)
            os.kill(served.workers[0], signal.SIGKILL)
        return (await sending)[0]

    with server([bench.model], max(2, bench.threads)) as served:
        answers = asyncio.run(killed(served))
        count = len(served.workers)
    texts = [text for answer in answers for text in answer.json().get("translatedText", [])]
    different = sum(ours != theirs for ours, theirs in zip(texts, best, strict=False))
    different += abs(len(texts) - len(best))
    measured = f"two killed under load: {different} of {len(best):,} lines differ; {count} workers at the end"
    yield "a worker killed with SIGKILL: translated again by another", measured, verdict(not different)


def ended(bench: Bench) -> Iterator[Row]:
    """Send SIGTERM under load. Each accepted request must get an answer."""
    statuses = Counter[str]()

    async def asking(served: Server) -> None:
        async def work(connection: Connection) -> None:
            for line in itertools.cycle(bench.short):
                try:
                    answer = await connection.post("/translate", bench.fields(line))
                    statuses[str(answer.status)] += 1
                except (ConnectionError, OSError):
                    statuses["not taken in"] += 1
                    return

        sending = asyncio.create_task(clients(CLIENTS, served, work))
        await asyncio.sleep(5)
        served.process.terminate()
        await sending

    with server([bench.model], bench.threads) as served:
        asyncio.run(asking(served))
        code = served.process.wait()
        log = served.log.read_text()
    counted = int(log.split(" requests were answered")[0].splitlines()[-1].replace(",", ""))
    lost = counted - statuses["200"]
    measured = (
        f"exit code {code}; the server answered {counted:,}, its {CLIENTS} clients got {statuses['200']:,}: "
        f"{lost} lost; {statuses['not taken in']} saw their connection end without an answer begun"
    )
    yield "SIGTERM under load loses nothing that was accepted", measured, verdict(not lost and not code)


PARTS: dict[str, Callable[[Bench], Iterator[Row]]] = {
    "equality": equality,
    "throughput": throughput,
    "latency": latency,
    "lists": lists,
    "memory": memory,
    "overload": overload,
    "worker": worker,
    "signal": ended,
}


def verdict(holds: bool) -> str:
    """Return the table's word for a promise that holds or not."""
    return "yes" if holds else "**no**"


@click.command(help=method(__doc__))
@click.argument("parts", nargs=-1, type=click.Choice(list(PARTS)))
@click.option("--model", type=click.Path(path_type=Path), required=True, help="A model folder.")
@click.option("--text", type=click.Path(path_type=Path), required=True, help="A file in its source language.")
@click.option("--lines", default=4096, help="Lines to use of the text.")
@click.option("--threads", default=2, help="Workers of the server.")
@click.option("--requests", default=50_000, help="Requests of the part memory.")
@click.option("--minutes", default=5.0, help="Minutes of the part overload.")
def main(
    parts: Sequence[str], model: Path, text: Path, lines: int, threads: int, requests: int, minutes: float
) -> None:
    """Measure the parts, and print a table."""
    words = text.read_text("utf-8").splitlines()
    bench = Bench(model, [*itertools.islice(itertools.cycle(words), lines)], threads, requests, minutes)
    load = os.getloadavg()[0]
    print(f"{date.today()}, {os.cpu_count()} cores, {platform.machine()}, load {load:.1f} at the beginning\n")
    print_head("promise", "measured", "holds")
    for part in parts or PARTS:
        for row in PARTS[part](bench):
            print_row(*row)


if __name__ == "__main__":
    main()
