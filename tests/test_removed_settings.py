"""Old settings in files, on the command line, in models and in Python programs."""

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, get_type_hints

import pytest

from nmt_cli.config import describe, read, section_of
from nmt_cli.data.config import NamedCorpus, PreprocessConfig
from nmt_cli.data.preprocessing.job import differences
from nmt_cli.decoding.config import SearchConfig, TranslateConfig
from nmt_cli.errors import UserError
from nmt_cli.model.config import ModelConfig
from nmt_cli.removed_settings import REMOVED, Removed
from nmt_cli.scoring.config import ScoreConfig
from nmt_cli.serving.config import ServeConfig
from nmt_cli.setting_values import toml_literal
from nmt_cli.training.config import TrainConfig
from tests.checks import refusal

COMMANDS = (PreprocessConfig, TrainConfig, TranslateConfig, ServeConfig, ScoreConfig)

ALL_SECTIONS = {section for config in COMMANDS for section in get_type_hints(config)}

OLD: Mapping[str, Removed] = {
    "optimizer.pedals": Removed("a motor turns it. Buy one", 2),
    "optimizer.noise": Removed("nobody hears it"),
    "optimizer.twin": Removed("it is optimizer.ema", same_as="ema"),
    "model.colour": Removed("models are grey", "grey", training_only=True),
    "model.wheels": Removed("models have four", 4),
}


@pytest.fixture
def old(monkeypatch: pytest.MonkeyPatch) -> None:
    """Add settings to the table of removed ones."""
    for name, one in OLD.items():
        monkeypatch.setitem(REMOVED, name, one)


def written(folder: Path, text: str) -> Path:
    """Write `text` to a file in `folder`, and return its path."""
    path = folder / "old.toml"
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.usefixtures("old")
@pytest.mark.parametrize("value", ["noise = 3", "noise = 'much'", "pedals = 2", "pedals = 2\nnoise = 0"])
def test_a_value_that_changes_nothing_is_ignored_with_a_note(tmp_path: Path, value: str) -> None:
    file, notes = written(tmp_path, f"[optimizer]\nbeta2 = 0.5\n{value}\n"), list[str]()
    assert read(TrainConfig, file, note=notes.append).optimizer.beta2 == 0.5
    names = ", ".join(f"optimizer.{line.split()[0]}" for line in value.splitlines())
    assert notes == [f"{file}: ignored settings that were removed and change nothing: {names}"]


@pytest.mark.usefixtures("old")
def test_a_value_with_an_effect_is_refused_with_the_remedy(tmp_path: Path) -> None:
    file = written(tmp_path, "[optimizer]\npedals = 3\n")
    message = refusal(read, TrainConfig, file)
    assert message == f"optimizer.pedals = 3 was removed, in {file}: a motor turns it. Buy one. Delete it."


@pytest.mark.usefixtures("old")
def test_a_setting_that_was_merged_with_another_may_have_the_same_value(tmp_path: Path) -> None:
    file = written(tmp_path, "[optimizer]\nema = 0.5\ntwin = 0.5\n")
    assert read(TrainConfig, file).optimizer.ema == 0.5
    file = written(tmp_path, "[optimizer]\nema = 0.5\ntwin = 0.4\n")
    assert "optimizer.twin = 0.4 was removed, in " in refusal(read, TrainConfig, file)


@pytest.mark.usefixtures("old")
def test_a_model_with_a_removed_setting_is_read_unless_it_would_translate_otherwise() -> None:
    settings: dict[str, Any] = asdict(ModelConfig(width=8, heads=2))
    read_back = section_of(ModelConfig, settings | {"colour": "red", "wheels": 4})
    assert read_back == ModelConfig(width=8, heads=2)
    message = refusal(section_of, ModelConfig, settings | {"wheels": 3})
    assert message == "model.wheels = 3 was removed: models have four. Delete it."
    with pytest.raises(ValueError, match="it has an unknown setting: doors"):
        section_of(ModelConfig, settings | {"doors": 3})


@pytest.mark.parametrize("name", REMOVED)
def test_each_removed_setting_gets_one_line_in_a_file_on_the_command_line_and_in_python(
    name: str, tmp_path: Path
) -> None:
    section, key = name.split(".")
    for config in COMMANDS:
        sections = get_type_hints(config)
        if name in {one.name for one in describe(config)}:
            continue
        if section not in sections and section in ALL_SECTIONS:
            continue  # of another command
        value = other_than(REMOVED[name].meant)
        assigned = f"{key} = {toml_literal(value)}"
        if REMOVED[name].meant is not None or REMOVED[name].same_as:
            file = written(tmp_path, f"[{section}]\n{assigned}\n")
            message = refusal(read, config, file)
            assert message == f"{section}.{assigned} was removed, in {file}: {REMOVED[name].now}. Delete it."
            assert "\n" not in message
            typed = refusal(read, config, assignments=[f"{name}={toml_literal(value)}"])
            assert typed == f"{section}.{assigned} was removed: {REMOVED[name].now}. Delete it."
        if section not in sections:  # the whole section was removed
            continue
        with pytest.raises(UserError) as caught:
            sections[section](**{key: value})
        assert str(caught.value).startswith(f"{section}.{assigned} was removed: ")


def other_than(meant: object) -> object:
    """Return another value of the type of `meant`, as another version may have stored it."""
    if isinstance(meant, bool):
        return not meant
    if isinstance(meant, int | float):
        return meant + 1
    return ["x"] if isinstance(meant, list) else "another"


def settings_in(text: str) -> set[str]:
    """Return the words of `text` that look like full names of settings."""
    words = {word.strip(".,:;").partition("=")[0] for word in text.split()}
    return {word for word in words if word.partition(".")[0] in ALL_SECTIONS and word.partition(".")[2]}


@pytest.mark.parametrize("name", REMOVED)
def test_the_remedy_names_settings_that_exist(name: str) -> None:
    existing = {one.name for config in COMMANDS for one in describe(config)}
    assert settings_in(REMOVED[name].now) <= existing


def test_a_setting_exists_or_is_removed() -> None:
    in_all = [{one.name for one in describe(config)} for config in COMMANDS if config is not TrainConfig]
    own_to_training = {one.name for one in describe(TrainConfig)}
    assert not own_to_training & REMOVED.keys()
    # Validation once had settings of nmt translate.
    both = {name for names in in_all for name in names & REMOVED.keys()}
    assert both <= {f"search.{name}" for name in SearchConfig.__dataclass_fields__}


@pytest.mark.parametrize(("value", "difference"), [(0.0, []), (0.5, ["filter.min_letters: 0.5 -> nothing"])])
def test_a_dataset_with_a_removed_setting_is_up_to_date_unless_it_had_an_effect(
    value: float, difference: list[str]
) -> None:
    settings = {section: dict(values) for section, values in asdict(PreprocessConfig()).items()}
    new: dict[str, Any] = {"source_lang": "en", "target_lang": "de", "reused_tokenizer": None, "inputs": []}
    old = {section: dict(values) for section, values in settings.items()}
    old["filter"]["min_letters"] = value
    old["tokenizer"]["seed"] = 1
    assert differences(new | {"settings": old}, new | {"settings": settings}) == difference


def test_a_removed_filter_of_one_corpus_gets_its_answer() -> None:
    message = refusal(NamedCorpus, name="web", path="web", filters={"one_per_source": True})
    assert message == (
        "filters of web: filter.one_per_source = true was removed: "
        "filter.one_per_target and filter.duplicates stay. Delete it."
    )
