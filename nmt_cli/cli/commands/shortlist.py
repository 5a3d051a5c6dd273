"""`nmt shortlist`: a model and its dataset in, the shortlist of the model out."""

from pathlib import Path

import click

from nmt_cli.cli.options import EXISTING, Command, common, printer


@click.command(cls=Command, epilog="nmt shortlist model dataset")
@click.argument("model", type=EXISTING)
@click.argument("dataset", type=EXISTING)
@common
def shortlist(model: Path, dataset: Path, quiet: bool) -> None:
    """Make a model faster by a lexical shortlist.

    MODEL is a model, checkpoint or run folder. It gets shortlist.safetensors,
    which nmt translate, nmt serve and an export for Bergamot then use. On a CPU,
    a sentence is then searched in a few hundred entries of the vocabulary.

    DATASET is a dataset with alignments (corpus.align=true) and the subwords of
    the model, such as the one that the model was trained on.
    """
    from nmt_cli.checkpoints.finding import TOKENIZERS, find_model
    from nmt_cli.checkpoints.model_folder import SHORTLIST, write_shortlist
    from nmt_cli.data.dataset import open_dataset
    from nmt_cli.data.shortlist import learned
    from nmt_cli.text.tokenizers import load_tokenizers

    folder = find_model(model)
    tokenizers = load_tokenizers(folder / TOKENIZERS)
    made = learned(open_dataset(dataset), tokenizers, folder)
    write_shortlist(folder, made, tokenizers)
    entries, tokens = len(tokenizers.target.vocabulary), len(made.offsets) - 1
    printer(quiet)(
        f"{folder / SHORTLIST}: {len(made.targets) / tokens:.1f} of {entries:,} entries for a source token"
    )
