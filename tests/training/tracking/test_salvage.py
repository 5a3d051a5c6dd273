"""A damaged log keeps each intact line up to the checkpoint, and losses are counted."""

import json

from nmt_cli.training.position import Position
from nmt_cli.training.tracking.salvage import salvaged


def step(number: int) -> bytes:
    line = {"step": number, "epoch": 0, "source_tokens": 5, "target_tokens": 6, "skipped": False}
    return json.dumps({**line, "tokens_per_second": 7.0, "loss": 1.0}).encode()


def validation(number: int, name: str = "dev") -> bytes:
    scores = {"nll": 1.0, "perplexity": 2.0, "word_perplexity": 3.0, "signatures": {}}
    return json.dumps({"step": number, "valid": name, **scores}).encode()


def log(*lines: bytes) -> bytes:
    return b"".join(line + b"\n" for line in lines)


WHOLE = log(step(1), step(2), validation(2), step(3))
AT_3 = Position(step=3, scores={"2": 1.0})


def test_a_whole_log_is_kept_as_it_is() -> None:
    assert salvaged(WHOLE, AT_3) == (WHOLE, [])


def test_lines_after_the_checkpoint_are_removed_without_a_warning() -> None:
    later = log(validation(3), step(4), validation(4)) + b'{"step": 5, "ep'
    assert salvaged(WHOLE + later, AT_3) == (WHOLE, [])


def test_a_damaged_line_is_lost_and_the_step_that_it_had_is_missed() -> None:
    damaged = log(step(1), b'{"step": 2, "epo\x00', validation(2), step(3))
    stored, lost = salvaged(damaged, AT_3)
    assert stored == log(step(1), validation(2), step(3))
    assert lost == ["1 damaged lines", "1 missing steps"]


def test_a_line_that_readers_could_not_read_counts_as_damaged() -> None:
    no_number = step(2).replace(b'"loss": 1.0', b'"loss": "1.0"')
    no_list = b"[" * 100_000
    stored, lost = salvaged(log(step(1), no_number, no_list, validation(2), step(3)), AT_3)
    assert stored == log(step(1), validation(2), step(3))
    assert lost == ["2 damaged lines", "1 missing steps"]


def test_a_repeated_step_keeps_its_first_line_and_a_missing_validation_counts() -> None:
    again = step(2).replace(b'"loss": 1.0', b'"loss": 9.0')
    stored, lost = salvaged(log(step(1), step(2), again, step(3)), AT_3)
    assert stored == log(step(1), step(2), step(3))
    assert lost == ["1 missing validations"]
