"""Argos Translate installs exported packages, and translates with them."""

import importlib.util
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from nmt_cli.interop.exporters.exporting import TOOLKITS, export
from nmt_cli.text.tokenizers import Tokenizers
from tests.interop.exporters.test_exporting import SMALL, random_model

ARGOS_TRANSLATE = Path(__file__).with_name("argos_translate.py")


@pytest.mark.slow
@pytest.mark.skipif(
    importlib.util.find_spec("argostranslate") is None,
    reason="needs Argos Translate: pip install --no-deps argostranslate stanza emoji, "
    "and pip install spacy minisbd",
)
def test_argos_translate_installs_a_package_and_translates_as_a_check_does(
    toy_tokenizers: Callable[..., Tokenizers], tmp_path: Path, toy_pairs: list[tuple[str, str]]
) -> None:
    model = random_model(tmp_path / "ours", SMALL, toy_tokenizers())
    export(model, "argos", tmp_path / "theirs")
    lines = [source for source, _ in toy_pairs[:8]]
    command = [sys.executable, str(ARGOS_TRANSLATE), *map(str, (tmp_path / "theirs").iterdir())]
    done = subprocess.run(command, input="\n".join(lines), capture_output=True, text=True, check=True)
    translations = TOOLKITS["argos"].translate(tmp_path / "theirs", lines)
    assert len({*translations}) > 1
    assert done.stdout.splitlines() == translations
