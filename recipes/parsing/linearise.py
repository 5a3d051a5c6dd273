"""Turn treebank files into training text: the words of each tree, a tab, and its linearised form.

    python -m recipes.parsing.linearise NAME.trees ...

Each line of a file is a bracketed tree. `nmt preprocess` reads the result, which is NAME.tsv beside the file.
The symbols of all trees are printed as a setting for `nmt preprocess --set`: brackets with labels, and tags.
As single tokens, they make targets half as long.
"""

import json
import sys
from collections.abc import Iterator
from pathlib import Path

from recipes.parsing.trees import Tree, linearised, parse


def read_trees(path: Path) -> Iterator[Tree]:
    """Yield the tree of each line of a file. Exit with an error for a line that is not one valid tree."""
    # Bytes that are not UTF-8 pass unchanged. `nmt preprocess` reports them.
    with path.open(encoding="utf-8", errors="surrogateescape", newline="\n") as lines:
        for number, line in enumerate(lines, start=1):
            try:
                yield parse(line)
            except ValueError as error:
                sys.exit(
                    f"Error: {path} line {number:,}: {error}; a line must be one bracketed tree, such as "
                    "(TOP (NP (DT the) (NN cat)))."
                )


def linearise(path: Path) -> set[str]:
    """Write NAME.tsv beside a file NAME.trees. Return the brackets and tags in it, except single characters,
    which are always tokens. Exit with an error for a line that is not one valid tree."""
    symbols: set[str] = set()
    with path.with_suffix(".tsv").open("w", encoding="utf-8", errors="surrogateescape") as pairs:
        for tree in read_trees(path):
            symbols.update(tree.symbols)
            pairs.write(f"{' '.join(tree.words)}\t{linearised(tree)}\n")
    return {symbol for symbol in symbols if len(symbol) > 1}


def main() -> None:
    """Write the pairs of each file, and print the symbols of all files as a setting."""
    symbols = set[str]().union(*(linearise(Path(name)) for name in sys.argv[1:]))
    print(f"tokenizer.symbols={json.dumps(sorted(symbols), ensure_ascii=False)}")


if __name__ == "__main__":
    main()
