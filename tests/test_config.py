"""Settings from defaults, files, `--set` and options, and the errors about invalid ones."""

import dataclasses
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nmt_cli.config import (
    Setting,
    as_commented_toml,
    as_toml,
    changed,
    check,
    describe,
    given_entries,
    preset_names,
    preset_path,
    read,
    setting,
    settings_of_kind,
)
from nmt_cli.data.config import PreprocessConfig
from nmt_cli.decoding.config import SearchConfig, TranslateConfig
from nmt_cli.errors import UserError
from nmt_cli.scoring.config import ScoreConfig
from nmt_cli.setting_values import Bounds, Entry, meanings_of, toml_literal
from nmt_cli.training.config import TrainConfig
from tests.checks import refusal


@dataclass(frozen=True, kw_only=True, slots=True)
class KilnConfig:
    """A section that compares its settings with each other."""

    lowest: int = 10
    """Minimum heat,
    in degrees."""

    highest: int = 20
    """Maximum heat."""

    def __post_init__(self) -> None:
        if self.lowest > self.highest:
            raise UserError(f"lowest is {self.lowest}, above highest. Lower it.")


@dataclass(frozen=True, kw_only=True, slots=True)
class PotteryConfig:
    """All settings of a small program."""

    kiln: KilnConfig = field(default_factory=KilnConfig)


@dataclass(frozen=True, kw_only=True, slots=True)
class WheelConfig:
    """A section with bounds and removed settings."""

    speed: float = setting(1.0, Bounds(above=0, most=10), everyday=True)
    """Turns per second."""

    pause: int = setting(0, Bounds(least=5, or_zero=True), kind="use")
    """Seconds between two pots; 0 for none."""

    stops: tuple[float, ...] = setting((), Bounds(least=0, below=360), kind="shape")
    """Angles."""

    def __post_init__(self) -> None:
        check(self)


@dataclass(frozen=True, kw_only=True, slots=True)
class SlowWheelConfig(WheelConfig):
    """A section that extends another."""

    oil: int = setting(3)
    """Drops."""


@dataclass(frozen=True, kw_only=True, slots=True)
class WorkshopConfig:
    """Two sections."""

    wheel: WheelConfig = field(default_factory=WheelConfig)
    slow: SlowWheelConfig = field(default_factory=SlowWheelConfig)


def written(folder: Path, text: str, name: str = "settings.toml") -> Path:
    """Write `text` to a file in `folder`, and return its path."""
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def error_of(
    *assignments: str,
    config: type[object] = PreprocessConfig,
    file: Path | None = None,
    preset: Path | None = None,
) -> str:
    """Read invalid settings, and return the message of the error."""
    return refusal(read, config, file, assignments, preset=preset)


def test_options_override_assignments_files_presets_and_defaults_in_this_order(tmp_path: Path) -> None:
    assert read(PreprocessConfig) == PreprocessConfig()
    preset = written(tmp_path, "[kiln]\nlowest = 1\nhighest = 100\n", "preset.toml")
    assert read(PotteryConfig, preset=preset).kiln == KilnConfig(lowest=1, highest=100)
    file = written(tmp_path, "[kiln]\nlowest = 2\n")
    assert read(PotteryConfig, file, preset=preset).kiln == KilnConfig(lowest=2, highest=100)
    assigned = ["kiln.lowest=3", "kiln.lowest=4"]
    assert read(PotteryConfig, file, assigned).kiln.lowest == 4
    assert read(PotteryConfig, file, assigned, [Entry("kiln.lowest", 0, "--lowest")]).kiln.lowest == 0


def test_a_file_with_a_byte_order_mark_and_windows_line_ends_is_read(tmp_path: Path) -> None:
    path = tmp_path / "notepad.toml"
    path.write_bytes(b"\xef\xbb\xbf[kiln]\r\nlowest = 3\r\n")
    assert read(PotteryConfig, path).kiln.lowest == 3


@pytest.mark.parametrize(
    ("assignment", "value"),
    [
        ("filter.max_ratio=3", 3.0),
        ("filter.max_ratio=2.5", 2.5),
        ("filter.duplicates=true", True),
        ("filter.source_script=Latin", "Latin"),
        ('filter.source_script="Latin"', "Latin"),
        ("filter.source_script=", ""),
        ("corpus.source_column=2", "2"),
        ("tokenizer.symbols=[]", ()),
        ('tokenizer.symbols=["="]', ("=",)),
        ("tokenizer.sample_lines=1_000", 1000),
    ],
)
def test_an_assignment_is_read_as_toml_or_else_as_plain_text(assignment: str, value: object) -> None:
    section, key = assignment.partition("=")[0].split(".")
    value_read = getattr(getattr(read(PreprocessConfig, None, [assignment]), section), key)
    assert (value_read, type(value_read)) == (value, type(value))


@pytest.mark.parametrize(
    ("assignments", "expected"),
    [
        ("tokenizer.vocab_size=many", 'must be a whole number (got "many")'),
        ("tokenizer.vocab_size=8000.0", "must be a whole number (got 8000.0)"),
        ("tokenizer.joint=yes", 'must be true or false (got "yes")'),
        ("filter.max_ratio=nan", "must be a number (got nan)"),
        ("filter.source_script=5.5", "must be a text in UTF-8 (got 5.5)"),
        ("text.unicode=nfd", 'must be "nfc" or "nfkc" or "none" (got "nfd")'),
        ("text.unicode=['nfc']", 'must be "nfc" or "nfkc" or "none" (got ["nfc"])'),
        ("tokenizer.symbols=<BT>", 'must be a list, each item a text in UTF-8 (got "<BT>")'),
        ('tokenizer.symbols=["<BT>",2]', 'must be a list, each item a text in UTF-8 (got ["<BT>", 2])'),
        ('tokenizer.symbols=["two\\twords"]', "'two\\twords'"),
        ('tokenizer.symbols=[""]', "''"),
        ('tokenizer.symbols=["<BT>","<BT>"]', "twice"),
        ("tokenizer.vocab_size=7", "must be at least 8 (got 7)"),
        ("filter.max_ratio=0.5", "must be 0, or at least 1 (got 0.5)"),
        ("corpus.valid_size=-1", "must be at least 0 (got -1)"),
        ("tokenizer.kind=bpe tokenizer.merges=-1", "must be at least 0 (got -1)"),
        ("tokenizer.merges=10", "bpe"),
        ("tokenizer.kind=bpe tokenizer.sentencepiece_model=bpe", "sentencepiece"),
        (
            "tokenizer.kind=bpe tokenizer.split_digits=true",
            "tokenizer.split_digits has no effect with tokenizer.kind = bpe. Leave it out, or choose "
            "kind = sentencepiece.",
        ),
        ("tokenizer.kind=bpe tokenizer.vocab_size=80 tokenizer.merges=10", "Give one"),
        ("tokenizer.vocabsize=8", "did you mean tokenizer.vocab_size?"),
        ("tokeniser.vocab_size=8", "did you mean tokenizer.vocab_size?"),
        ("filter.lowercase=true", "did you mean text.lowercase?"),
        ("vocab_size=100", "did you mean tokenizer.vocab_size?"),
        ("nonsense=1", "the sections are corpus, text, tokenizer, filter. --settings prints all settings"),
        ("text.12345678901234567890=1", "there are text.unicode, text.zero_width, text.quotes"),
        ("vocab_size", "section.key=value"),
    ],
)
def test_an_error_names_the_setting_and_the_remedy(assignments: str, expected: str) -> None:
    message = error_of(*assignments.split(" "))
    assert assignments.split(" ")[-1].partition("=")[0] in message
    assert expected in message


def test_every_problem_is_reported_at_once_with_its_origin(tmp_path: Path) -> None:
    file = written(tmp_path, 'stray = 1\n[text]\nquotes = "no"\n[nonsense]\nkey = 1\n')
    message = error_of("tokenizer.vocab_size=big", "filter.ratio=2", file=file)
    sections = "the sections are corpus, text, tokenizer, filter. --settings prints all settings"
    assert message.startswith(f"there is no setting stray, in {file}: {sections}")
    assert f'text.quotes must be true or false (got "no"), in {file}' in message
    assert f"there is no setting nonsense.key, in {file}: " in message
    assert 'tokenizer.vocab_size must be a whole number (got "big"); ' in message
    assert "there is no setting filter.ratio: did you mean filter.max_ratio?" in message


def test_a_conflict_between_settings_names_the_file(tmp_path: Path) -> None:
    file = written(tmp_path, "[kiln]\nlowest = 30\n")
    message = error_of(config=PotteryConfig, file=file)
    assert message == f"kiln.lowest is 30, above kiln.highest, in {file}. Lower it."


@pytest.mark.parametrize(
    "content",
    [b"[text\n", b"text = \xff\n", b"a = 1\na = 2\n", b"a = " + b"[" * 100_000, b"a = " + b"9" * 10_000],
    ids=range(5),
)
def test_a_file_that_is_not_toml_is_named(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "broken.toml"
    file.write_bytes(content)
    assert error_of(file=file).startswith(f"{file} is not a TOML file")


def test_every_setting_is_described_by_its_default_and_meaning() -> None:
    settings = {setting.name: setting for setting in describe(PreprocessConfig)}
    defaults = PreprocessConfig()
    names = [
        f"{section.name}.{key.name}"
        for section in dataclasses.fields(defaults)
        for key in dataclasses.fields(getattr(defaults, section.name))
    ]
    assert list(settings) == names
    for name, expected in settings.items():
        section, key = name.split(".")
        assert expected.default == getattr(getattr(defaults, section), key)
        assert len(expected.meaning) > 10, name
        assert "\n" not in expected.meaning


@pytest.mark.parametrize(
    ("meaning", "summary"),
    [
        ("Beam size. 1 is greedy search.", "Beam size. 1 is greedy search."),
        (
            "Beam size. " + "A long explanation. " * 3 + "No.",
            "Beam size. A long explanation. A long explanation.",
        ),
        ("Sampling: e.g.5 is fine", "Sampling: e.g.5 is fine"),
    ],
)
def test_a_summary_is_the_first_sentence_and_what_fits_after_it(meaning: str, summary: str) -> None:
    assert Setting("a.b", 1, "", meaning, everyday=False, needs="").summary == summary


def test_an_installation_without_sources_describes_settings_without_meanings(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def no_source(_: object) -> str:
        raise OSError("could not get source code")

    monkeypatch.setattr("inspect.getsource", no_source)
    meanings_of.cache_clear()
    try:
        described = describe(WorkshopConfig)[0]
        assert (described.meaning, described.summary, described.default) == ("", "", 1.0)
        assert "# [more than 0 and at most 10]\n#speed = 1.0\n" in as_commented_toml(WorkshopConfig())
    finally:
        meanings_of.cache_clear()


def test_an_error_names_the_option_that_the_user_typed(tmp_path: Path) -> None:
    file = written(tmp_path, "[wheel]\npause = 1\n[kiln]\nlowest = 30\n")
    options = [Entry("wheel.speed", 11.0, "--speed")]
    with pytest.raises(UserError) as caught:
        read(WorkshopConfig, written(tmp_path, "[wheel]\npause = 1\n"), ["slow.oil=x"], options)
    assert caught.value.args == (
        f"wheel.pause must be 0, or at least 5 (got 1), in {file}",
        'slow.oil must be a whole number (got "x")',
        "--speed must be more than 0 and at most 10 (got 11)",
    )
    with pytest.raises(UserError) as caught:
        read(PotteryConfig, options=[Entry("kiln.lowest", 30, "--lowest")])
    assert caught.value.args == ("--lowest is 30, above kiln.highest. Lower it.",)


FINITE = st.floats(allow_nan=False, allow_infinity=False)
VALUES = st.one_of(st.booleans(), st.integers(-(2**60), 2**60), FINITE, st.text())


@given(value=st.one_of(VALUES, st.lists(st.text())))
def test_a_value_written_as_toml_reads_back_as_itself(value: object) -> None:
    assert tomllib.loads(f"value = {toml_literal(value)}")["value"] == value


def test_a_conflict_between_preset_and_file_names_both(tmp_path: Path) -> None:
    preset = written(tmp_path, "[kiln]\nlowest = 15\n", "preset.toml")
    file = written(tmp_path, "[kiln]\nhighest = 12\n")
    message = error_of(config=PotteryConfig, file=file, preset=preset)
    assert message == f"kiln.lowest is 15, above kiln.highest, in {preset} and {file}. Lower it."


def test_an_unknown_setting_in_a_preset_names_the_preset(tmp_path: Path) -> None:
    preset = written(tmp_path, "[kiln]\nhottest = 5\n", "preset.toml")
    message = error_of(config=PotteryConfig, preset=preset)
    assert message.startswith(f"there is no setting kiln.hottest, in {preset}: did you mean kiln.")


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("transformer_big", "did you mean vaswani2017-big?"),
        ("base", "did you mean vaswani2017-base?"),
        ("vaswani2017-bgi", "did you mean vaswani2017-big?"),
        ("tinny", "did you mean tiny?"),
        ("xyz", "there are deep-12-1, deep-12-2, iwslt14, marian-base, "),
        ("../presets/tiny", "there is no preset ../presets/tiny"),
    ],
)
def test_an_unknown_preset_gets_the_most_similar_one(name: str, expected: str) -> None:
    message = refusal(preset_path, name)
    assert f"there is no preset {name}: " in message and expected in message


def test_a_preset_is_found_by_other_spellings_of_its_name() -> None:
    assert preset_path("Vaswani2017_base") == preset_path("vaswani2017-base")


@pytest.mark.parametrize(
    ("assignment", "section", "expected"),
    [
        ("schedule.kind=inverse_sqrt", "schedule", "inverse-sqrt"),
        ("schedule.kind=COSINE", "schedule", "cosine"),
        ("optimizer.kind=AdamW", "optimizer", "adamw"),
    ],
)
def test_a_choice_is_found_by_other_spellings(assignment: str, section: str, expected: str) -> None:
    assert getattr(read(TrainConfig, assignments=[assignment]), section).kind == expected


def test_true_and_false_may_have_a_capital() -> None:
    assert read(TrainConfig, assignments=["training.tensorboard=True"]).training.tensorboard
    assert not read(TrainConfig, assignments=["model.scale_embeddings=False"]).model.scale_embeddings


def test_a_choice_of_python_must_be_spelled_exactly() -> None:
    with pytest.raises(UserError, match="length_rule must be"):
        SearchConfig(length_rule="Power")  # type: ignore[arg-type]


@pytest.mark.parametrize("assignment", ["schedule.kind=polynomial_decay", "schedule.kind=linear_decay"])
def test_the_value_of_another_toolkit_gets_a_suggestion(assignment: str) -> None:
    assert refusal(read, TrainConfig, assignments=[assignment]).endswith(": did you mean linear?")


@pytest.mark.parametrize(
    ("content", "toolkit"),
    [
        (
            "src_vocab: v\ntransforms: [bpe]\ntraining:\n  train_steps: 9\nmodel:\n  hidden_size: 8\n",
            "eole",
        ),
        ("save_model: run\ntrain_steps: 9\nrnn_size: 8\nworld_size: 1\nvalid_steps: 2\n", "OpenNMT"),
        ("train-sets: [a, b]\nvocabs:\n  - a.spm\nmini-batch-fit: true\nafter-epochs: 10\n", "Marian"),
        ("models:\n  - m.npz\nvocabs:\n  - a.spm\nbeam-size: 6\nrelative-paths: true\n", "Marian"),
        ("prepared_data: d\nvalidation_source: a\nnum_layers: 6:6\n", "Sockeye"),
        (
            "datasets:\n  clean: a.tsv\nstages:\n  - start\nstart:\n  - clean 1.0\ntrainer: marian\n",
            "OpusTrainer",
        ),
        ("name: x\ndata:\n  train: a\ntesting:\n  beam_size: 5\ntraining:\n  optimizer: adam\n", "JoeyNMT"),
    ],
)
def test_a_yaml_file_of_another_toolkit_is_named(tmp_path: Path, content: str, toolkit: str) -> None:
    file = written(tmp_path, content, "config.yaml")
    message = refusal(read, TrainConfig, file)
    assert message.startswith(f"{file} is a YAML file of {toolkit}, and nmt reads TOML. --settings prints ")
    assert "nmt help from-other-toolkits" in message


def test_a_yaml_file_of_no_known_toolkit_is_named_as_yaml(tmp_path: Path) -> None:
    file = written(tmp_path, "colour: blue\n", "config.yaml")
    assert refusal(read, TrainConfig, file).startswith(f"{file} is a YAML file, and nmt reads TOML.")


def test_a_colon_in_toml_is_reported_with_its_line(tmp_path: Path) -> None:
    file = written(tmp_path, "[training]\nmax_steps: 5\n")
    assert "is not a TOML file: Expected '=' after a key in a key/value pair (at line 2, " in refusal(
        read, TrainConfig, file
    )


def test_an_unknown_setting_with_a_huge_value_is_an_error_of_one_line(tmp_path: Path) -> None:
    file = written(tmp_path, f"[training]\nsteps_of_training = 0x{'f' * 9000}\n")
    assert refusal(read, TrainConfig, file).startswith("there is no setting training.steps_of_training")


def test_a_setting_without_a_similar_one_gets_no_suggestion() -> None:
    message = refusal(read, TrainConfig, assignments=["training.quantise_by=8"])
    assert message.startswith("there is no setting training.quantise_by: there are training.max_steps, ")


@pytest.mark.parametrize("name", preset_names())
def test_a_preset_has_a_description_and_survives_being_written_as_toml(tmp_path: Path, name: str) -> None:
    assert preset_path(name).read_text(encoding="utf-8").startswith("# ")
    config = read(TrainConfig, preset=preset_path(name))
    assert read(TrainConfig, written(tmp_path, as_toml(config))) == config


@dataclass(frozen=True, kw_only=True, slots=True)
class GlazeConfig:
    """A section with a setting of every type."""

    colour: str = "celadon"
    """Any text."""

    finish: Literal["matt", "gloss"] = "matt"
    """One of two."""

    coats: int = 1
    """Number of coats."""

    thickness: float = 0.1
    """In millimetres."""

    lead: bool = False
    """Whether it is poisonous."""

    oxides: tuple[str, ...] = ()
    """Ingredients."""

    weights: tuple[float, ...] = ()
    """Weight of each ingredient."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CeramicsConfig:
    """Two sections."""

    glaze: GlazeConfig = field(default_factory=GlazeConfig)
    kiln: KilnConfig = field(default_factory=KilnConfig)


TEXTS = st.text(st.characters(exclude_categories=["Cs"]))


@given(
    glaze=st.builds(
        GlazeConfig,
        colour=TEXTS,
        finish=st.sampled_from(["matt", "gloss"]),
        coats=st.integers(-(2**63), 2**63 - 1),
        thickness=FINITE,
        lead=st.booleans(),
        oxides=st.lists(TEXTS).map(tuple),
        weights=st.lists(FINITE).map(tuple),
    ),
    lowest=st.integers(-5, 20),
)
def test_a_configuration_written_as_toml_is_read_back_the_same(
    tmp_path_factory: pytest.TempPathFactory, glaze: GlazeConfig, lowest: int
) -> None:
    config = CeramicsConfig(glaze=glaze, kiln=KilnConfig(lowest=lowest))
    file = tmp_path_factory.getbasetemp() / "ceramics.toml"
    file.write_text(as_toml(config), encoding="utf-8")
    assert read(CeramicsConfig, file) == config


@pytest.mark.parametrize(
    "values",
    [{"speed": 0.1}, {"speed": 10.0}, {"pause": 0}, {"pause": 5}, {"stops": ()}, {"stops": (0.0, 359.9)}],
    ids=str,
)
def test_values_within_bounds_are_accepted(values: dict[str, Any]) -> None:
    assert changed(WheelConfig(**values), "speed", "pause", "stops") in ([*values], [])


@pytest.mark.parametrize(
    ("section", "values", "message"),
    [
        (WheelConfig, {"speed": 0.0}, "speed must be more than 0 and at most 10 (got 0)"),
        (WheelConfig, {"speed": 10.1}, "speed must be more than 0 and at most 10 (got 10.1)"),
        (WheelConfig, {"speed": float("nan")}, "speed must be a number (got nan)"),
        (WheelConfig, {"pause": 4}, "pause must be 0, or at least 5 (got 4)"),
        (WheelConfig, {"stops": (1.0, 360.0)}, "each item of stops must be at least 0 and less than 360 "),
        (WheelConfig, {"pause": 1, "speed": 11.0}, "speed must be more than 0 and at most 10 (got 11); paus"),
        (SearchConfig, {"beam": "4"}, 'beam must be a whole number (got "4")'),
        (SearchConfig, {"beam": 2.0}, "beam must be a whole number (got 2.0)"),
        (SearchConfig, {"beam": None}, "beam must be a whole number (got None)"),
        (SearchConfig, {"length_rule": "x"}, 'length_rule must be "gnmt" or "power" (got "x")'),
        (SearchConfig, {"stop_early": 1}, "stop_early must be true or false (got 1)"),
    ],
    ids=str,
)
def test_wrong_values_are_refused_together_when_a_section_is_made(
    section: type[Any], values: dict[str, Any], message: str
) -> None:
    assert refusal(section, **values).startswith(message)


def test_settings_of_a_section_and_its_base_are_described() -> None:
    described = {setting.name: setting for setting in describe(WorkshopConfig)}
    assert [name for name in described if name.startswith("slow.")] == [
        *("slow.speed", "slow.pause", "slow.stops", "slow.oil")
    ]
    assert (described["slow.speed"].meaning, described["slow.oil"].meaning) == ("Turns per second.", "Drops.")
    speed, pause, oil = (described[name] for name in ("wheel.speed", "wheel.pause", "slow.oil"))
    assert (speed.takes, speed.everyday) == ("more than 0 and at most 10", True)
    assert (pause.takes, pause.everyday, oil.takes) == ("0, or at least 5", False, "")
    assert {s.name: s.takes for s in describe(CeramicsConfig)}["glaze.finish"] == "matt | gloss"
    assert describe(PotteryConfig)[0].meaning == "Minimum heat, in degrees."


def test_settings_are_listed_by_kind() -> None:
    assert settings_of_kind(WheelConfig, "use") == ("pause",)
    assert settings_of_kind(WheelConfig, "shape") == ("stops",)
    assert settings_of_kind(WheelConfig, "training only") == ()


def test_changed_settings_are_named_in_the_requested_order() -> None:
    wheel = WheelConfig(speed=2.0, pause=9)
    assert changed(wheel, "pause", "stops", "speed") == ["pause", "speed"]


def test_removed_settings_are_not_suggested() -> None:
    assert "merges_seed" not in (message := error_of("tokenizer.sed=2"))
    assert "tokenizer.seed" not in message


def uncommented(text: str) -> str:
    return re.sub(r"(?m)^#(?=[a-z0-9_]+ = )", "", text)


@pytest.mark.parametrize("config", [PreprocessConfig, TrainConfig, TranslateConfig, ScoreConfig])
def test_commented_toml_is_read_back_with_and_without_comment_signs(
    tmp_path: Path, config: type[Any]
) -> None:
    text = as_commented_toml(config())
    assert read(config, written(tmp_path, text)) == config()
    assert read(config, written(tmp_path, uncommented(text))) == config()
    sections = tomllib.loads(uncommented(text))
    names = [f"{section}.{key}" for section, keys in sections.items() for key in keys]
    assert names == [setting.name for setting in describe(config)]


def test_commented_toml_gives_only_changed_settings(tmp_path: Path) -> None:
    config = CeramicsConfig(glaze=GlazeConfig(coats=3, oxides=("tin",)))
    file = written(tmp_path, as_commented_toml(config))
    assert {entry.name for entry in given_entries(file)} == {"glaze.coats", "glaze.oxides"}
    assert read(CeramicsConfig, file) == config


def test_commented_toml_contains_meaning_bounds_and_default() -> None:
    text = as_commented_toml(WorkshopConfig(wheel=WheelConfig(speed=2.0)))
    assert text.startswith(
        "# Every setting. Lines that begin with # show defaults: remove the # to change one.\n\n"
        "[wheel]\n\n"
        "# Turns per second. [more than 0 and at most 10; default 1.0]\nspeed = 2.0\n\n"
        "# Seconds between two pots; 0 for none. [0, or at least 5]\n#pause = 0\n\n"
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class Glaze:
    """A table of settings."""

    colour: str
    layers: float = setting(1.0, Bounds(least=1))
    likeness: float | None = None
    shares: Mapping[str, float] = setting({})

    def __post_init__(self) -> None:
        check(self)


@dataclass(frozen=True, kw_only=True, slots=True)
class GlazesConfig:
    """A section with tables."""

    glazes: tuple[Glaze, ...] = ()
    """Glazes."""

    mixed: Mapping[str, float] = setting({})
    """By name."""

    tables: ClassVar[str] = "glazes"


@dataclass(frozen=True, kw_only=True, slots=True)
class ShelfConfig:
    """One section."""

    glaze: GlazesConfig = field(default_factory=GlazesConfig)


GLAZES = """[[glaze]]
colour = "blue"
shares = { "cobalt oxide" = 1, tin = 0.5 }
[[glaze]]
colour = "grey"
layers = 2
likeness = 0.5
"""


def test_tables_are_read_in_order_and_written_unchanged(tmp_path: Path) -> None:
    shelf = read(ShelfConfig, written(tmp_path, GLAZES), ["glaze.mixed={blue=3}"])
    blue, grey = shelf.glaze.glazes
    assert blue == Glaze(colour="blue", shares={"cobalt oxide": 1.0, "tin": 0.5})
    assert (grey.layers, grey.likeness, blue.likeness) == (2.0, 0.5, None)
    assert shelf.glaze.mixed == {"blue": 3.0}
    for text in (as_toml(shelf), as_commented_toml(shelf)):
        assert read(ShelfConfig, written(tmp_path, text)) == shelf


@pytest.mark.parametrize(
    ("assignment", "expected"),
    [
        ('glazes=[{colour="blue", layer=2}]', "it has no setting layer: did you mean layers?"),
        ("glazes=[{layers=2}]", "colour is required"),
        ('glazes=[{colour="blue", layers=0}]', "layers must be at least 1 (got 0)"),
        ('glazes=[{colour="blue", layers="two"}]', 'layers must be a number (got "two")'),
        ('glazes=[{colour="blue", likeness="no"}]', 'likeness must be a number (got "no")'),
        (
            'glazes="blue"',
            'must be a list, each item a table of colour, layers, likeness, shares (got "blue")',
        ),
        ("mixed=3", "must be a table, each value a number (got 3)"),
        ("mixed={blue=true}", "must be a table, each value a number (got {'blue': True})"),
    ],
)
def test_an_error_in_a_table_names_the_setting(assignment: str, expected: str) -> None:
    message = error_of(f"glaze.{assignment}", config=ShelfConfig)
    assert expected in message and f"glaze.{assignment.partition('=')[0]}" in message
