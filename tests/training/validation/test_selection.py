"""Selection by validation: averages are validated, and the best one is selected."""

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


def names(actual: list[Average]) -> dict[str, list[int]]:
    return {each.name: [int(folder.name[5:]) for folder in each.folders] for each in actual}


def complaint(run: Path) -> str:
    with pytest.raises(UserError) as caught:
        tried(run)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_checkpoint_names_its_dataset(go: Go, run: Path, toy_dataset: Path) -> None:
    go("training.max_steps=1")
    assert read_state(run / "last")["dataset"] == str(toy_dataset.resolve())


def test_candidates_are_the_last_the_best_and_averages_of_existing_checkpoints(
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
    actual = names(averages(run))
    assert list(actual) == ["last", "best", *(f"average of {count}" for count in (2, 3, 5, 10, 20, 40))]
    assert actual["average of 40"] == list(range(1, 41))


@pytest.mark.parametrize("scores", [{}, {"1": 0.5, "2": 0.75}], ids=["never judged", "the last is the best"])
def test_the_last_checkpoint_is_not_listed_again_as_the_best(
    run: Path, identity: Identity, scores: Mapping[str, float]
) -> None:
    weights = dict(identity.build().named_parameters())
    for step in (1, 2):
        save_checkpoint(run, identity, Checkpoint(step, weights, {}, {"scores": scores}))
    assert names(averages(run)) == {"last": [2], "average of 2": [1, 2]}


def test_moving_averages_of_weights_are_candidates_if_they_exist(run: Path, identity: Identity) -> None:
    weights = dict(identity.build().named_parameters())
    for step in (1, 2):
        save_checkpoint(run, identity, Checkpoint(step, weights, {}, {"scores": {"1": 2.0}}, ema=weights))
    actual = averages(run)
    names_found = ["last", "best", "average of 2", "EMA of last", "EMA of best"]
    assert names(actual) == dict(zip(names_found, ([2], [1], [1, 2], [2], [1]), strict=True))
    assert [each.file for each in actual] == ["model.safetensors"] * 3 + ["ema.safetensors"] * 2


def test_the_moving_average_wins_if_it_is_better_and_is_written(
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
    stored = read_model(tmp_path / "model")
    assert all(torch.equal(p, weights[name]) for name, p in stored.transformer.named_parameters())
    (part,) = stored.description["averaged"]
    assert (part["step"], part["ema"]) == (100, True)
    assert not (tmp_path / "model/ema.safetensors").exists()


LEARN = ("training.max_steps=60", "validation.metric=nll", "schedule.warmup=20", "schedule.factor=2.0")


@pytest.fixture
def noisy(go: Go, run: Path, identity: Identity) -> Path:
    """Return a run with two checkpoints whose mean is a good model."""
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


def test_the_average_wins_if_it_is_better_than_its_parts(noisy: Path) -> None:
    trials = tried(noisy)
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


def test_the_sets_are_decoded_whole_although_training_took_some_sentences(go: Go, run: Path) -> None:
    go("training.max_steps=1", "validation.sentences=3")
    (trial,) = tried(run)
    assert len(trial.judgements[0].translations) == 20


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
def test_the_best_is_kept_and_of_equals_the_simplest(scores: list[float], stored: str) -> None:
    order = ["last", "best", "average of 2", "average of 3"]
    trials = [made_up(name, score) for name, score in zip(order, scores, strict=True)]
    assert winner(trials).average.name == stored


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


def test_a_moved_dataset_is_reported_with_a_remedy(
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
def test_a_dataset_with_other_contents_is_refused(
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


def test_a_dataset_without_a_validation_set_is_refused(
    go: Go, run: Path, tmp_path: Path, make: Callable[..., Outcome], toy: str
) -> None:
    make(tmp_path / "dataset", [toy])
    go("training.max_steps=1", dataset=tmp_path / "dataset")
    assert complaint(run).startswith(f"{tmp_path / 'dataset'} has no validation set to select by; ")


def test_a_checkpoint_that_names_no_dataset_is_refused(go: Go, run: Path, identity: Identity) -> None:
    go("training.max_steps=1")
    weights = load_file(run / "last/model.safetensors")
    folder = save_checkpoint(run, identity, Checkpoint(2, weights, {}, {}))
    assert complaint(run) == (
        f"{folder / 'state.json'} does not name its dataset; choose with --last or --best."
    )
