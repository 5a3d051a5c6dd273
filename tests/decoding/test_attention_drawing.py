"""The lines that the attention page draws, by its own script on a recording canvas."""

import json
import subprocess
from importlib.resources import files

import pytest

from nmt_cli.html.compose import script

HARNESS = """
globalThis.document = { documentElement: { dataset: { theme: "light" } } };
globalThis.devicePixelRatio = 1;
const drawn = [];
let from;
const context = {
  scale() {}, beginPath() {},
  moveTo(x, y) { from = y; },
  lineTo(x, y) { drawn.push([from - 0.5, y - 0.5, context.globalAlpha]); },
  stroke() {},
};
const weights = JSON.parse(Deno.args[0]);
const bytes = Uint8Array.from(weights.flat());
const of = { layers: 1, heads: 1, rows: weights.length, columns: weights[0].length, bytes };
lines({ getContext: () => context }, 100, 1, of, 0, [0]);
console.log(JSON.stringify(drawn));
"""


def drawn(deno: str, weights: list[list[int]]) -> dict[tuple[int, int], float]:
    """Return the opacity of the lines of one head by query and key. Weights are bytes."""
    text = script(files("nmt_cli.translation") / "page", ["drawing.js"]) + HARNESS
    command = [deno, "run", "--no-config", "--ext=js", "-", json.dumps(weights)]
    printed = subprocess.run(command, input=text, capture_output=True, check=True, text=True).stdout
    return {(round(query), round(key)): opacity for query, key, opacity in json.loads(printed)}


@pytest.mark.parametrize("keys", [2, 50, 60, 100, 255, 400])
def test_uniform_attention_has_visible_lines_at_any_length(deno: str, keys: int) -> None:
    actual = drawn(deno, [[round(255 / keys)] * keys])
    assert len(actual) == keys
    assert all(opacity >= 0.099 for opacity in actual.values())


def test_the_opacity_of_lines_is_relative_to_the_strongest_of_a_query(deno: str) -> None:
    diffuse = [3] * 80
    diffuse[17] = 6
    actual = drawn(deno, [diffuse, [0] * 80, [255] + 79 * [0]])
    assert actual[0, 17] == max(opacity for (query, _), opacity in actual.items() if query == 0)
    assert actual[0, 17] == pytest.approx(2 * actual[0, 16])
    assert {key for query, key in actual if query == 2} == {0}
    assert not [key for query, key in actual if query == 1]


def test_focused_attention_is_drawn_with_the_opacity_of_its_weights(
    deno: str,
) -> None:
    actual = drawn(deno, [[204, 47, 4]])
    assert actual == {(0, 0): pytest.approx(0.8), (0, 1): pytest.approx(47 / 255)}
