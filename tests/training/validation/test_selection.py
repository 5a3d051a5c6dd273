"""Selection by validation: averages are validated, and the best one is selected."""

import shutil
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch

from nmt_cli.checkpoints.average import average
from nmt_cli.checkpoints.finding import checkpoints
from nmt_cli.checkpoints.model_folder import Identity, read_model, weights
from nmt_cli.checkpoints.run_folder import Checkpoint, read_state, save_checkpoint
from nmt_cli.data.preprocessing.pipeline import Outcome
from nmt_cli.training.validation.judge import Judge, Judgement
from nmt_cli.training.validation.selection import Average, Trial, averages, try_all, winner
from tests.checks import differing, refusal
from tests.training.runs import Go, tensors_of

Make = Callable[..., Outcome]
Noisy = Callable[..., dict[str, torch.Tensor]]
CPU = torch.device("cpu")


def tried(run: Path) -> list[Trial]:
    reported: list[Trial] = []
    trials = try_all(run, CPU, reported.append)
    assert reported == trials
    return trials


def names(actual: list[Average]) -> dict[str, list[int]]:
    return {each.name: [int(folder.name[5:]) for folder in each.folders] for each in actual}


def save(
    run: Path, identity: Identity, steps: Iterable[int], scores: Mapping[str, float], ema: bool = False
) -> None:
    """Save checkpoints of an untrained model, as the average too if `ema`."""
    tensors = weights(identity.build())
    for step in steps:
        average = tensors if ema else {}
        save_checkpoint(run, identity, Checkpoint(step, tensors, {}, {"scores": scores}, average))


def test_candidates_are_the_last_the_best_and_averages_of_existing_checkpoints(
    run: Path, identity: Identity
) -> None:
    scores = {"1": 0.5, "3": 0.75, "4": 0.75, "9": 0.1}
    save(run, identity, range(1, 3), scores)
    assert names(averages(run)) == {"last": [2], "best": [1], "average of 2": [1, 2]}
    save(run, identity, range(3, 7), scores)
    assert names(averages(run)) == {
        **{"last": [6], "best": [4], "average of 2": [5, 6]},
        **{"average of 3": [4, 5, 6], "average of 5": [2, 3, 4, 5, 6]},
    }
    save(run, identity, range(7, 41), scores)
    actual = names(averages(run))
    assert list(actual) == ["last", "best", *(f"average of {count}" for count in (2, 3, 5, 10, 20, 40))]
    assert actual["average of 40"] == list(range(1, 41))


@pytest.mark.parametrize("scores", [{}, {"1": 0.5, "2": 0.75}], ids=["never judged", "the last is the best"])
def test_the_last_checkpoint_is_not_listed_again_as_the_best(
    run: Path, identity: Identity, scores: Mapping[str, float]
) -> None:
    save(run, identity, (1, 2), scores)
    assert names(averages(run)) == {"last": [2], "average of 2": [1, 2]}


def test_moving_averages_of_weights_are_candidates_if_they_exist(run: Path, identity: Identity) -> None:
    save(run, identity, (1, 2), {"1": 2.0}, ema=True)
    actual = averages(run)
    assert names(actual) == {
        **{"last": [2], "best": [1], "average of 2": [1, 2]},
        **{"EMA of last": [2], "EMA of best": [1]},
    }
    assert [each.file for each in actual] == ["model.safetensors"] * 3 + ["ema.safetensors"] * 2


LEARN = ("training.max_steps=60", "validation.metric=nll", "schedule.warmup=20", "schedule.factor=2.0")


@pytest.fixture
def noisy(go: Go, run: Path, identity: Identity) -> Noisy:
    """Return a function that trains a good model, and replaces its checkpoint by noisy ones.

    The argument has the sign of the noise by step. The good weights are the EMA if `ema`, and are returned.
    """

    def noisy(signs: Mapping[int, int], ema: bool = False) -> dict[str, torch.Tensor]:
        go(*LEARN)
        (folder,) = checkpoints(run).values()
        good, progress = tensors_of(run), {"dataset": read_state(folder)["dataset"]}
        torch.manual_seed(8)
        noise = {name: 0.3 * torch.randn_like(tensor) for name, tensor in good.items()}
        for step, sign in signs.items():
            moved = {name: tensor + sign * noise[name] for name, tensor in good.items()}
            save_checkpoint(run, identity, Checkpoint(step, moved, {}, progress, good if ema else {}))
        shutil.rmtree(folder)
        return good

    return noisy


def test_the_moving_average_wins_if_it_is_better_and_is_written(
    noisy: Noisy, run: Path, tmp_path: Path
) -> None:
    good = noisy({100: 1}, ema=True)
    trials = tried(run)
    assert [trial.average.name for trial in trials] == ["last", "EMA of last"]
    won = winner(trials)
    assert won is trials[1]
    assert trials[1].score > trials[0].score + 0.1
    average(won.average.folders, tmp_path / "model", won.average.file)
    stored = read_model(tmp_path / "model")
    assert not differing(weights(stored.transformer), good)
    (part,) = stored.description["averaged"]
    assert (part["step"], part["ema"]) == (100, True)
    assert not (tmp_path / "model/ema.safetensors").exists()


def test_the_average_wins_if_it_is_better_than_its_parts(noisy: Noisy, run: Path) -> None:
    noisy({100: 1, 101: -1})
    trials = tried(run)
    assert [trial.average.name for trial in trials] == ["last", "average of 2"]
    assert [trial.steps for trial in trials] == [[101], [100, 101]]
    assert winner(trials) is trials[1]
    assert trials[1].score == -trials[1].judgements[0].nll > trials[0].score + 0.1


def test_a_trial_has_the_validation_results_of_its_checkpoint(go: Go, run: Path, dataset: Any) -> None:
    _, events = go("training.max_steps=2", "validation.every_steps=2", "validation.metric=chrf")
    (message,) = (event.judgements for event in events if hasattr(event, "judgements"))
    (trial,) = tried(run)
    assert trial.judgements[0].scores == message[0].scores
    assert trial.judgements[0].nll == pytest.approx(message[0].nll, rel=1e-6)
    assert (trial.metric, trial.score) == ("chrf", message[0].scores[1].value)


def test_a_metric_for_which_smaller_is_better_selects_the_smallest(go: Go, run: Path) -> None:
    go("training.max_steps=2", "validation.every_steps=2", "checkpoints.every_steps=1")
    trials = try_all(run, CPU, lambda trial: None, "ter")
    scores = [trial.judgements[0].metrics["ter"] for trial in trials]
    assert [-trial.score for trial in trials] == scores
    assert winner(trials).judgements[0].metrics["ter"] == min(scores)


def made_up(name: str, score: float) -> Trial:
    judgement = Judgement("dev", 1.0, 2.0, 3.0, [], [])
    return Trial(Average(name, []), [], [judgement], "bleu", score)


@pytest.mark.parametrize(
    ("scores", "stored"),
    [
        ([1.0, 2.0, 3.0, 4.0], "average of 3"),
        ([5.0, 2.0, 3.0, 4.0], "last"),
        ([5.0, 5.0, 5.0, 5.0], "last"),
        ([1.0, 5.0, 5.0, 5.0], "best"),
        ([1.0, 2.0, 5.0, 5.0], "average of 2"),
        ([-3.0, -2.5, -2.0, -2.5], "average of 2"),
    ],
    ids=str,
)
def test_the_best_wins_and_of_equals_the_simplest(scores: list[float], stored: str) -> None:
    order = ["last", "best", "average of 2", "average of 3"]
    trials = [made_up(name, score) for name, score in zip(order, scores, strict=True)]
    assert winner(trials).average.name == stored


def test_all_sentences_of_validation_sets_are_translated_and_none_of_test_sets(
    go: Go,
    run: Path,
    tmp_path: Path,
    nmt_preprocess: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
    toy: str,
    dev: str,
) -> None:
    sets = ("--train", toy, "--valid", dev, "--test", toy, "--set", "filter.decontaminate=false")
    made = nmt_preprocess(*sets, "--out", tmp_path / "dataset")
    assert made.returncode == 0
    go("training.max_steps=1", "validation.sentences=3", dataset=tmp_path / "dataset")
    looked_at, judge = [], Judge.judge

    def noting(self: Judge, model: Any, split: Any) -> Judgement:
        looked_at.append((split.name, split.role))
        return judge(self, model, split)

    monkeypatch.setattr(Judge, "judge", noting)
    (trial,) = tried(run)
    assert looked_at == [("dev", "valid")]
    assert [(one.name, len(one.translations)) for one in trial.judgements] == [("dev", 20)]


def test_a_moved_dataset_is_reported_with_a_remedy(
    go: Go, run: Path, tmp_path: Path, toy_dataset: Path
) -> None:
    data = tmp_path / "dataset"
    shutil.copytree(toy_dataset, data)
    go("training.max_steps=1", dataset=data)
    data.rename(tmp_path / "elsewhere")
    assert refusal(tried, run) == (
        f"{run} was trained on {data}, which does not exist any more. "
        "Put the dataset back, or a link to its new path."
    )
    data.symlink_to(tmp_path / "elsewhere")
    assert len(tried(run)) == 1


@pytest.mark.parametrize("setting", ["tokenizer.joint=false", "filter.max_subwords=20"])
def test_a_dataset_with_other_contents_is_refused(
    go: Go, run: Path, tmp_path: Path, make: Make, toy: str, dev: str, setting: str
) -> None:
    data = tmp_path / "dataset"
    make(data, [toy], valid=[dev])
    go("training.max_steps=1", dataset=data)
    make(data, [toy], setting, valid=[dev], overwrite=True)
    assert refusal(tried, run) == (
        f"{data} has changed since {run} was trained on it, so it cannot validate the run. "
        "Choose with --last or --best."
    )


def test_a_dataset_without_a_validation_set_is_refused(
    go: Go, run: Path, tmp_path: Path, make: Make, toy: str
) -> None:
    make(tmp_path / "dataset", [toy])
    go("training.max_steps=1", dataset=tmp_path / "dataset")
    assert refusal(tried, run).startswith(f"{tmp_path / 'dataset'} has no validation set to select by. ")


def test_a_checkpoint_that_names_no_dataset_is_refused(go: Go, run: Path, identity: Identity) -> None:
    go("training.max_steps=1")
    folder = save_checkpoint(run, identity, Checkpoint(2, tensors_of(run), {}, {}))
    assert refusal(tried, run) == (
        f"{folder / 'state.json'} does not name its dataset. Choose with --last or --best."
    )
