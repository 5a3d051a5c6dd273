"""Rules about the next token that depend on the tokens of a hypothesis.

A new rule is a function here, with a line in `rules_for`, and a setting in `config.py` or a field of
`Sentence`. The engine does not know the setting or field, so searches with it take the plain path. A program
that uses the library gives its own rule with `Model.translate(rule=...)`.

R rows, each a hypothesis with T tokens, and V entries of the vocabulary. A rule overwrites log-probabilities
of the next token, [R, V]: -inf forbids it. If all tokens are forbidden, the hypothesis ends.
"""

from collections.abc import Sequence
from functools import partial

import torch
from torch import Tensor

from nmt_cli.decoding.config import SearchConfig
from nmt_cli.decoding.search.hypotheses import Bans, BatchItem, History, Rule


def rules_for(config: SearchConfig, items: Sequence[BatchItem]) -> list[Rule]:
    """Return the rules that the settings or the sentences of a batch ask for, in the order of applying."""
    rules = list[Rule]()
    if config.no_repeat_ngram:
        rules.append(partial(forbid_repeated_ngrams, size=config.no_repeat_ngram))
    if any(item.bans for item in items):
        rules.append(forbid_banned_sequences)
    if any(item.sentence.placeholders for item in items):
        rules.append(require_placeholders)
    if any(item.sentence.rule for item in items):
        rules.append(apply_own_rules)
    return rules


def forbid_repeated_ngrams(log_probs_RV: Tensor, history: History, end: int, size: int) -> None:
    """Forbid tokens that complete an n-gram of `size` tokens that is in the row. The end token is exempt."""
    tokens_RT, ages_R = history.tokens_RT, history.ages_R
    if tokens_RT.shape[1] < size:
        return
    rows_RWN = tokens_RT.unfold(1, size, 1)
    newest = ages_R[:, None] - size + 1 + torch.arange(size - 1, device=ages_R.device)
    last_RM = tokens_RT.gather(1, newest.clamp(min=0))
    starts_W = torch.arange(rows_RWN.shape[1], device=ages_R.device)
    written_RW = starts_W <= ages_R[:, None] - size
    again_RW = (rows_RWN[:, :, :-1] == last_RM[:, None]).all(-1) & written_RW
    banned_RV = torch.zeros_like(log_probs_RV, dtype=torch.bool)
    # Windows that do not match point at the end token, which is allowed again below.
    banned_RV.scatter_(1, rows_RWN[:, :, -1].masked_fill(~again_RW, end), True)
    banned_RV[:, end] = False
    log_probs_RV.masked_fill_(banned_RV, -torch.inf)


def forbid_banned_sequences(log_probs_RV: Tensor, history: History, end: int) -> None:
    """Forbid tokens that complete a banned sequence of the row's sentence. The end token is exempt."""
    rows: list[int] = []
    ids: list[int] = []
    for row, (tokens, item) in enumerate(zip(history.paths(), history.items_R, strict=True)):
        for length in {len(before) for before in item.bans}:
            banned = item.bans.get(tuple(tokens[item.age - length :]), ()) if length <= item.age else ()
            rows += [row] * len(banned)
            ids += banned
    # If the end token were banned, a hypothesis would have to continue to its cap.
    ends_R = log_probs_RV[:, end].clone()
    log_probs_RV[rows, ids] = -torch.inf
    log_probs_RV[:, end] = ends_R


def bans_of(sequences: Sequence[Sequence[int]]) -> Bans:
    """Return the last ids of `sequences`, grouped by the ids before the last. No sequence may be empty."""
    bans: dict[tuple[int, ...], list[int]] = {}
    for *before, last in sequences:
        bans.setdefault(tuple(before), []).append(last)
    return bans


def require_placeholders(log_probs_RV: Tensor, history: History, end: int) -> None:
    """Require each placeholder of the source exactly once in the translation. This applies to rows whose
    sentences have such rules.

    - While wanted placeholders are missing, the end token is forbidden.
    - If the end token is likeliest, or if there is `room` for the missing ones only, no other token is
      allowed.
    - Placeholders that are not missing are forbidden.
    - The `join` symbol is forbidden once the row has it `joins` times.
    """
    likeliest = log_probs_RV.argmax(1).tolist()
    for row, (tokens, item) in enumerate(zip(history.paths(), history.items_R, strict=True)):
        if (placeholders := item.sentence.placeholders) is None:
            continue
        missing = [symbol for symbol in placeholders.wanted if symbol not in tokens]
        missing_log_probs = log_probs_RV[row, missing].clone()
        if missing and (likeliest[row] == end or item.room <= len(missing)):
            log_probs_RV[row] = -torch.inf
        log_probs_RV[row, list(placeholders.symbols)] = -torch.inf
        if placeholders.join is not None and tokens.count(placeholders.join) >= placeholders.joins:
            log_probs_RV[row, placeholders.join] = -torch.inf
        if missing:
            log_probs_RV[row, end] = -torch.inf
            log_probs_RV[row, missing] = missing_log_probs


def apply_own_rules(log_probs_RV: Tensor, history: History, end: int) -> None:
    """Apply the rule of each sentence that has one to its rows. Sentences of several calls share a batch."""
    rules: dict[int, tuple[Rule, list[int]]] = {}
    for row, item in enumerate(history.items_R):
        if rule := item.sentence.rule:
            rules.setdefault(id(rule), (rule, []))[1].append(row)
    for rule, rows in rules.values():
        own_RV, items = log_probs_RV[rows], [history.items_R[row] for row in rows]
        rule(own_RV, History((), history.tokens_RT[rows], history.ages_R[rows], items), end)
        log_probs_RV[rows] = own_RV
