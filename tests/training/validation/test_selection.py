"""Selecting by validation: real averages on a real set, and which of them is kept."""

import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from nmt_cli.checkpoints.average import average
from nmt_cli.checkpoints.finding import checkpoints
from nmt_cli.checkpoints.model_folder import Identity, read_model
from nmt_cli.checkpoints.run_folder import Checkpoint, read_state, save_checkpoint
from nmt_cli.data.preprocessing.preprocess import Outcome
from nmt_cli.errors import UserError
from nmt_cli.training.validation.metrics import Judge, Judgement
from nmt_cli.training.validation.selection import Average, Trial, averages, try_all, winner

Go = Callable[..., Any]
CPU = torch.device("cpu")


def tried(run: Path) -> list[Trial]:
    reported: list[Trial] = []
    trials = try_all(run, CPU, reported.append)
    assert reported == trials
    return trials


def names(found: list[Average]) -> dict[str, list[int]]:
    return {each.name: [int(folder.name[5:]) for folder in each.folders] for each in found}


def complaint(run: Path) -> str:
    with pytest.raises(UserError) as caught:
        tried(run)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_checkpoint_names_its_dataset(go: Go, run: Path, toy_dataset: Path) -> None:
    go("training.max_steps=1")
    assert read_state(run / "last")["dataset"] == str(toy_dataset.resolve())


def test_candidates_are_the_last_the_best_and_averages_of_as_many_as_there_are(
    run: Path, identity: Identity
) -> None:
    weights = dict(identity.build().named_parameters())
    for step in range(1, 41):
        scores = {"1": 0.5, "3": 0.75, "4": 0.75, "9": 0.1}
        save_checkpoint(run, identity, Checkpoint(step, weights, {}, {"scores": scores}))
        if step in (2, 6):
            assert (
                names(averages(run))
                == {
                    2: {"last": [2], "best": [1], "average of 2": [1, 2]},
                    6: {
                        **{"last": [6], "best": [3], "average of 2": [5, 6]},
                        **{"average of 3": [4, 5, 6], "average of 5": [2, 3, 4, 5, 6]},
                    },
                }[step]
            )
    found = names(averages(run))
    assert list(found) == ["last", "best", *(f"average of {count}" for count in (2, 3, 5, 10, 20, 40))]
    assert found["average of 40"] == list(range(1, 41))


@pytest.mark.parametrize("scores", [{}, {"1": 0.5, "2": 0.75}], ids=["never judged", "the last is the best"])
def test_there_is_no_best_but_the_last(run: Path, identity: Identity, scores: Mapping[str, float]) -> None:
    weights = dict(identity.build().named_parameters())
    for step in (1, 2):
        save_checkpoint(run, identity, Checkpoint(step, weights, {}, {"scores": scores}))
    assert names(averages(run)) == {"last": [2], "average of 2": [1, 2]}


def test_moving_averages_of_weights_are_candidates_where_there_are_some(
    run: Path, identity: Identity
) -> None:
    weights = dict(identity.build().named_parameters())
    for step in (1, 2):
        save_checkpoint(run, identity, Checkpoint(step, weights, {}, {"scores": {"1": 2.0}}, ema=weights))
    found = averages(run)
    names_found = ["last", "best", "average of 2", "EMA of last", "EMA of best"]
    assert names(found) == dict(zip(names_found, ([2], [1], [1, 2], [2], [1]), strict=True))
    assert [each.file for each in found] == ["model.safetensors"] * 3 + ["ema.safetensors"] * 2


def test_the_moving_average_wins_where_it_is_better_and_is_what_is_kept(
    go: Go, run: Path, identity: Identity, tmp_path: Path
) -> None:
    go(*LEARN)
    (good,) = checkpoints(run).values()
    weights, progress = load_file(good / "model.safetensors"), {"dataset": read_state(good)["dataset"]}
    torch.manual_seed(8)
    noisy = {name: tensor + 0.3 * torch.randn_like(tensor) for name, tensor in weights.items()}
    save_checkpoint(run, identity, Checkpoint(100, noisy, {}, progress, ema=weights))
    shutil.rmtree(good)
    trials = tried(run)
    assert [trial.average.name for trial in trials] == ["last", "EMA of last"]
    won = winner(trials)
    assert won is trials[1]
    assert trials[1].score > trials[0].score + 0.1
    average(won.average.folders, tmp_path / "model", won.average.file)
    kept = read_model(tmp_path / "model")
    assert all(torch.equal(p, weights[name]) for name, p in kept.transformer.named_parameters())
    (part,) = kept.description["averaged"]
    assert (part["step"], part["ema"]) == (100, True)
    assert not (tmp_path / "model/ema.safetensors").exists()


LEARN = ("training.max_steps=60", "validation.metric=nll", "schedule.warmup=20", "schedule.factor=2.0")


@pytest.fixture
def noisy(go: Go, run: Path, identity: Identity) -> Path:
    """A run of two checkpoints that lie on both sides of a good model, which is not there any more."""
    go(*LEARN)
    (good,) = checkpoints(run).values()
    weights, progress = load_file(good / "model.safetensors"), {"dataset": read_state(good)["dataset"]}
    torch.manual_seed(8)
    noise = {name: 0.3 * torch.randn_like(tensor) for name, tensor in weights.items()}
    for step, sign in ((100, 1), (101, -1)):
        moved = {name: tensor + sign * noise[name] for name, tensor in weights.items()}
        save_checkpoint(run, identity, Checkpoint(step, moved, {}, progress))
    shutil.rmtree(good)
    return run


def test_the_average_wins_where_it_is_better_than_each(noisy: Path) -> None:
    trials = tried(noisy)
    assert [trial.average.name for trial in trials] == ["last", "average of 2"]
    assert [trial.steps for trial in trials] == [[101], [100, 101]]
    assert winner(trials) is trials[1]
    assert trials[1].score == -trials[1].judgements[0].nll > trials[0].score + 0.1


def test_a_trial_is_what_the_judge_says_of_that_checkpoint(go: Go, run: Path, dataset: Any) -> None:
    _, events = go("training.max_steps=2", "validation.every_steps=2", "validation.metric=chrf")
    (told,) = (event.judgements for event in events if hasattr(event, "judgements"))
    (trial,) = tried(run)
    assert trial.judgements[0].scores == told[0].scores
    assert trial.judgements[0].nll == pytest.approx(told[0].nll, rel=1e-6)
    assert (trial.metric, trial.score) == ("chrf", told[0].scores[1].value)


def test_the_sets_are_decoded_whole_although_training_took_some_sentences(go: Go, run: Path) -> None:
    go("training.max_steps=1", "validation.sentences=3")
    (trial,) = tried(run)
    assert len(trial.judgements[0].translations) == 20


def made_up(name: str, score: float) -> Trial:
    judgement = Judgement("dev", 1.0, 2.0, 3.0, [], [])
    return Trial(Average(name, []), [], [judgement], "bleu", score)


@pytest.mark.parametrize(
    ("scores", "kept"),
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
def test_the_best_is_kept_and_of_equals_the_simplest(scores: list[float], kept: str) -> None:
    order = ["last", "best", "average of 2", "average of 3"]
    trials = [made_up(name, score) for name, score in zip(order, scores, strict=True)]
    assert winner(trials).average.name == kept


def test_a_test_set_is_never_looked_at(
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
    go("training.max_steps=1", dataset=tmp_path / "dataset")
    looked_at, judge = [], Judge.judge

    def noting(self: Judge, model: Any, split: Any) -> Judgement:
        looked_at.append((split.name, split.role))
        return judge(self, model, split)

    monkeypatch.setattr(Judge, "judge", noting)
    (trial,) = tried(run)
    assert looked_at == [("dev", "valid")]
    assert [judgement.name for judgement in trial.judgements] == ["dev"]


def test_a_dataset_that_moved_is_told_with_what_to_do(
    go: Go, run: Path, tmp_path: Path, toy_dataset: Path
) -> None:
    there = tmp_path / "dataset"
    shutil.copytree(toy_dataset, there)
    go("training.max_steps=1", dataset=there)
    there.rename(tmp_path / "elsewhere")
    assert complaint(run) == (
        f"{run} was trained on {there}, which does not exist any more; "
        "put the dataset back, or a link to its new path."
    )
    there.symlink_to(tmp_path / "elsewhere")
    assert len(tried(run)) == 1


@pytest.mark.parametrize("other", ["vocabulary", "text"])
def test_a_dataset_made_anew_with_another_content_is_told(
    go: Go, run: Path, tmp_path: Path, make: Callable[..., Outcome], toy: str, dev: str, other: str
) -> None:
    there = tmp_path / "dataset"
    make(there, [toy], valid=[dev])
    go("training.max_steps=1", dataset=there)
    if other == "vocabulary":
        make(there, [toy], "tokenizer.joint=false", valid=[dev], overwrite=True)
    else:
        make(there, [toy], "filter.max_subwords=20", valid=[dev], overwrite=True)
    assert complaint(run) == (
        f"{there} has changed since {run} was trained on it, so it cannot validate the run; "
        "choose with --last or --best."
    )


def test_a_dataset_without_a_validation_set_is_told(
    go: Go, run: Path, tmp_path: Path, make: Callable[..., Outcome], toy: str
) -> None:
    make(tmp_path / "dataset", [toy])
    go("training.max_steps=1", dataset=tmp_path / "dataset")
    assert complaint(run).startswith(f"{tmp_path / 'dataset'} has no validation set to select by; ")


def test_a_checkpoint_that_names_no_dataset_is_told(go: Go, run: Path, identity: Identity) -> None:
    go("training.max_steps=1")
    weights = load_file(run / "last/model.safetensors")
    folder = save_checkpoint(run, identity, Checkpoint(2, weights, {}, {}))
    assert complaint(run) == (
        f"{folder / 'state.json'} does not name its dataset; choose with --last or --best."
    )
