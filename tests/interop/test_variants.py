"""Every exporter writes a variant of the model faithfully or names what it cannot express."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from nmt_cli.interop.exporters.exporting import export, losses
from nmt_cli.interop.foreign import ImportOptions
from nmt_cli.interop.importers.importing import read
from nmt_cli.text.tokenizers import Tokenizers
from tests.interop.exporters.test_exporting import SMALL, random_model
from tests.model.test_variants import VARIANTS

EXPRESSIBLE = {
    "huggingface": SMALL,
    "marian": replace(SMALL, positions="marian", start="zeros", norm_epsilon=1e-6),
}
"""The formats that can be imported again, each with a model that it can express."""


@pytest.mark.parametrize("form", EXPRESSIBLE)
@pytest.mark.parametrize("variant", ["none", *VARIANTS])
def test_a_variant_comes_back_as_it_was_or_is_refused(
    form: str, variant: str, toy_tokenizers: Callable[..., Tokenizers], tmp_path: Path
) -> None:
    config = replace(EXPRESSIBLE[form], **VARIANTS.get(variant, {}))
    model = random_model(tmp_path / "ours", config, toy_tokenizers())
    if lost := losses(model, form):
        assert variant != "none", lost
        return
    export(model, form, tmp_path / "theirs")
    options = ImportOptions("en", "de") if form == "marian" else ImportOptions()
    returned = read(str(tmp_path / "theirs"), options)
    # Marian starts with a padding token whose vector is zero, so both settings of the start are right.
    start = model.identity.config.start if form == "marian" else returned.config.start
    assert replace(returned.config, start=start) == model.identity.config
