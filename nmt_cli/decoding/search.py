"""A batch in search: sentences come in, take steps together, and leave when nothing can get better."""

from collections.abc import Collection, Sequence
from itertools import zip_longest
from types import ModuleType

import torch
from torch import Tensor
from torch.nn import functional as F

from nmt_cli.attention.dispatch import FEW_ROWS
from nmt_cli.decoding.beams import Beams, Choice, rules_of
from nmt_cli.decoding.choose import best, best_of, chances, drawn, ways_on
from nmt_cli.decoding.config import SearchConfig
from nmt_cli.decoding.constraints import Bans, ban_repeated, ban_sequences, bans_of, penalise_repeated
from nmt_cli.decoding.ensemble import Ensemble
from nmt_cli.decoding.hypotheses import Hypothesis, Sentence
from nmt_cli.decoding.lengths import LengthRule
from nmt_cli.decoding.placeholder_rules import heed_placeholders
from nmt_cli.decoding.tree_rules import TreeWanted, Written, allowed_next, written
from nmt_cli.machine.kernels import compiled_kernels
from nmt_cli.model.cache import BLOCK, DecodingCache

FEW = 0.75
"""When no more than this share of a batch is still in search, the rest of it is cleared away."""

Done = tuple[Sentence, list[Hypothesis]]


class Search:
    """Sentences in search, whatever step each of them is at."""

    def __init__(
        self,
        ensemble: Ensemble,
        config: SearchConfig,
        look_every: int = 1,
    ) -> None:
        """The vocabulary says what is never produced; nor is its unknown unless the settings allow it.

        Only once in `look_every` steps, at most 8, the host waits for the device and looks at what is in use;
        where that is more than 1, every place takes each step, in use or not, so that shapes stay the same.
        """
        assert look_every <= BLOCK
        self._look_every, self._unseen = look_every, 0
        self._sentences: list[Sentence] = []
        self._active: list[bool] = []
        self._ensemble, self._config = ensemble, config
        self._rule = LengthRule(config.length_rule, config.length_penalty)
        vocabulary = ensemble.vocabulary
        self._end = vocabulary.end
        plain = not (config.sample or config.diversity or config.coverage_penalty)
        self._compiled = plain and look_every == 1 and ensemble.device.type == "cpu"
        banned = {*vocabulary.never} if config.unknown else {*vocabulary.never, vocabulary.unknown}
        self._banned = torch.tensor(sorted(banned), dtype=torch.int64, device=ensemble.device)
        if self._compiled:
            enough = config.beam if config.stop_early else None
            self._books_rules = rules_of(self._banned, self._end, self._rule, config.reach, enough)
        never = torch.zeros(len(vocabulary), dtype=torch.bool, device=ensemble.device)
        self._never = never.index_fill_(0, self._banned, True)
        self._ages: list[int] = []
        self._caps: list[int] = []
        self._bans: list[Bans] = []
        self._trees = self._placeholders = False
        self._written: dict[tuple[int, ...], Written] = {}
        self._caches: list[DecodingCache] = []
        self._beams: Beams | None = None

    @property
    def sentences(self) -> list[Sentence]:
        """Those that are not done."""
        return [one for one, active in zip(self._sentences, self._active, strict=True) if active]

    @torch.inference_mode()
    def join(self, sentences: Sequence[Sentence]) -> None:
        """Begin with `sentences`."""
        config, places = self._config, self._config.places
        caches = self._ensemble.start([sentence.tokens for sentence in sentences], places)
        for cache in caches:
            cache.ahead = self._look_every
            if config.coverage_penalty:
                cache.begin_coverage()
        pieces = [len(sentence.tokens) for sentence in sentences]
        caps = config.caps(pieces, self._ensemble.longest)
        least = [max(len(one.prefix) + _symbols(one), one.tree.words if one.tree else 0) for one in sentences]
        # What is given, a prefix, symbols or the words of a tree, must fit whatever the settings say.
        caps = [max(both) for both in zip(caps, least, strict=True)]
        most, read = (torch.tensor(each, device=self._ensemble.device) for each in (caps, pieces))
        beams = Beams.begin(most, read, places, places if config.sample else 1, config.found)
        if self._beams is None:
            self._beams, self._caches = beams, caches
        else:
            self._clear(self._beams, caches)
            self._beams.join(beams)
        self._sentences = [*self._sentences, *sentences]
        self._active = [*self._active, *(True for _ in sentences)]
        self._ages, self._caps = [*self._ages, *(0 for _ in sentences)], [*self._caps, *caps]
        self._trees = self._trees or any(sentence.tree for sentence in sentences)
        self._placeholders = self._placeholders or any(sentence.placeholders for sentence in sentences)
        self._bans = [*self._bans, *(bans_of(sentence.banned) for sentence in sentences)]

    @torch.inference_mode()
    def drop(self, places: Collection[int]) -> None:
        """Let some of `sentences`, by their numbers there, leave without being done."""
        assert self._beams is not None
        here = [i for i, active in enumerate(self._active) if active]
        leaving = [here[place] for place in places]
        for i in leaving:
            self._active[i] = False
        self._beams.give_up(torch.tensor(leaving, dtype=torch.int64, device=self._beams.totals.device))

    @torch.inference_mode()
    def step(self) -> list[Done]:
        """Let all hypotheses take a token, or few of them several; returns the sentences that are done, which
        leave."""
        assert self._beams is not None
        # Not as soon as some are done: if this runs out of memory, they must have left.
        if sum(self._active) <= FEW * len(self._active):
            self._clear(self._beams)
        beams, longest = self._beams, max(self._ages) + 1
        if self._few_suffice:
            for cache in self._caches:
                if not cache.ready:
                    cache.get_ready()
            going = [cap for cap, active in zip(self._caps, self._active, strict=True) if active]
            beams.make_room(longest + 1)
            most, rules = max(going) + 1, self._rules()
            self._advance(beams, longest, most, rules)
        else:
            self._take_and_look(beams, longest)
        self._ages = [age + 1 for age in self._ages]
        return self._leave(beams)

    def _take_and_look(self, beams: Beams, longest: int) -> None:
        """Take a step with the places in use."""
        oldest = max(age for age, active in zip(self._ages, self._active, strict=True) if active)
        rows, newest = beams.rows(self._look_every > 1, self._kernels)
        given = newest, rows, self._caches, oldest + 1
        if raw := self._logits_suffice(len(rows)):
            x = self._ensemble.logits(*given)
        else:
            x = self._ensemble.step(*given)
            self._constrain(x, rows)
        self._go_on(beams, x, raw, rows, longest)

    def _advance(self, beams: Beams, longest: int, most: int, rules: Tensor) -> None:
        """What a step between two looks asks of a device: the same each time, and the host learns nothing.

        No hypothesis gets `most` tokens; all that changes from step to step is in tensors.
        """
        rows, newest = beams.rows(everywhere=True)
        must_R, too_early_R, factor_R = rules
        steps, tokens = self._ensemble.likeliest(
            *(newest, rows, self._caches, most, ways_on(self._config.places, len(self._never))),
            (self._never, too_early_R, must_R),
        )
        steps[:, 0] *= factor_R  # of what must come there is nothing else
        choice = best_of(steps, tokens, rows, beams.totals, self._end, self._config.diversity)
        self._follow(beams, choice, longest)

    def _go_on(self, beams: Beams, x: Tensor, raw: bool, rows: Tensor, longest: int) -> None:
        """`x` are logits if they are `raw`, of which nothing is banned yet; else log-probabilities."""
        if not (kernels := self._kernels):
            self._follow(beams, self._choice(x, rows, beams.totals), longest)
            return
        parents = beams.go_on(x, raw, rows, self._books_rules, longest, kernels)
        for cache in self._caches:
            cache.follow(parents, beams.in_use)

    def _follow(self, beams: Beams, choice: Choice, longest: int) -> None:
        beams.follow(choice, self._rule, longest, self._coverage(), waits=self._look_every == 1)
        if not self._config.sample:
            # Not of samples, which are drawn, not compared.
            beams.give_up_hopeless(self._rule, self._config.reach)
            if self._config.stop_early:
                beams.give_up_where_enough_ended(self._config.beam)
        for cache in self._caches:
            cache.follow(choice.live_parents, beams.in_use)

    @property
    def _kernels(self) -> ModuleType | None:
        return compiled_kernels("decoding") if self._compiled else None

    @property
    def _heeding(self) -> bool:
        """Whether what was written may decide what comes next."""
        return self._config.constrained or self._trees or self._placeholders

    def _logits_suffice(self, rows: int) -> bool:
        """Whether a compiled step does all that is to be done with the logits of so many rows."""
        fixed = rows > FEW_ROWS or self._heeding or len(self._ensemble.models) > 1
        if fixed or not self._kernels or min(self._ages) < self._config.min_length:
            return False
        each = zip(self._sentences, self._ages, self._caps, self._active, strict=True)
        return all(self._must(one, age, cap) is None for one, age, cap, active in each if active)

    @property
    def _few_suffice(self) -> bool:
        """Whether nobody needs to know the log-probability of every token, and all places are rows."""
        config = self._config
        asked = config.sample or self._heeding or len(self._ensemble.models) > 1
        return self._look_every > 1 and not asked

    def _rules(self) -> Tensor:
        """[3, R], of all places: the token that must come next, the end where it is too early for it, or -1;
        and 0 where what must come counts as certain, else 1."""
        must = [self._must(*each) for each in zip(self._sentences, self._ages, self._caps, strict=True)]
        rules = torch.tensor(
            [
                [-1 if token is None else token for token in must],
                [self._end if age < self._config.min_length else -1 for age in self._ages],
                [age >= one.certain for one, age in zip(self._sentences, self._ages, strict=True)],
            ]
        )
        # A copy that the host does not wait for.
        return rules.repeat_interleave(self._config.places, 1).to(self._never.device, non_blocking=True)

    def _choice(self, log_probs: Tensor, rows: Tensor, totals: Tensor) -> Choice:
        if not self._config.sample:
            return best(log_probs, rows, totals, self._end, self._config.diversity)
        places = self._config.places
        where = [divmod(row, places) for row in self._numbers(rows)]
        keys = [self._sentences[sentence].key for sentence, _ in where]
        ages = [self._ages[sentence] for sentence, _ in where]
        lots = chances(self._config.seed, keys, [place for _, place in where], ages)
        on_device = torch.from_numpy(lots).to(log_probs.device, non_blocking=True)
        return drawn(log_probs, rows, totals, on_device, self._config, self._end)

    def _constrain(self, log_probs_RV: Tensor, rows: Tensor) -> None:
        """Nothing that is banned, and no end before its time; but where a token must come, that one."""
        assert self._beams is not None
        must = [self._must(*each) for each in zip(self._sentences, self._ages, self._caps, strict=True)]
        forced: tuple[Tensor, Tensor, Tensor] | None = None
        if any(token is not None for token in must):
            forced = self._forced(log_probs_RV, must, rows)
        log_probs_RV.index_fill_(1, self._banned, -torch.inf)
        ends_R = log_probs_RV[:, self._end].clone() if self._heeding else None
        if min(self._ages) < self._config.min_length:
            too_early = (self._beams.ages < self._config.min_length)[rows // self._config.places]
            log_probs_RV[:, self._end].masked_fill_(too_early, -torch.inf)
        if ends_R is not None:
            self._heed_history(log_probs_RV, rows)
            # A hypothesis to which the rules leave no token ends, though it may be early.
            nothing_left_R = (log_probs_RV == -torch.inf).all(1)
            here_R = log_probs_RV[:, self._end]
            here_R.copy_(torch.where(nothing_left_R, ends_R, here_R))
        if forced:
            rows_F, tokens_F, kept_F = forced
            log_probs_RV.index_fill_(0, rows_F, -torch.inf).index_put_((rows_F, tokens_F), kept_F)

    def _forced(
        self, log_probs_RV: Tensor, must: Sequence[int | None], rows: Tensor
    ) -> tuple[Tensor, Tensor, Tensor] | None:
        """[F] the rows in which a token must come, if any, the tokens, and their log-probabilities."""
        sentences = [number // self._config.places for number in self._numbers(rows)]
        each = [(row, one, must[one]) for row, one in enumerate(sentences) if must[one] is not None]
        if not each:
            return None
        sure = [age < one.certain for one, age in zip(self._sentences, self._ages, strict=True)]
        rows_F, tokens_F, sure_F = (
            # A copy that the host does not wait for.
            torch.tensor(values).to(rows.device, non_blocking=True)
            for values in ([e[0] for e in each], [e[2] for e in each], [sure[e[1]] for e in each])
        )
        # Copied before anything is banned: a prefix may hold what the settings forbid, at the model's own
        # score.
        return rows_F, tokens_F, log_probs_RV[rows_F, tokens_F] * ~sure_F

    def _numbers(self, rows: Tensor) -> Sequence[int]:
        """`rows` on the host."""
        return range(len(rows)) if self._look_every > 1 else rows.tolist()

    def _heed_history(self, log_probs_RV: Tensor, rows: Tensor) -> None:
        """Nothing that the settings forbid because of what was written."""
        assert self._beams is not None
        config, end, sentences = self._config, self._end, rows // self._config.places
        tokens_RT, ages_R = self._beams.tokens.flatten(0, 1)[rows], self._beams.ages[sentences]
        history = (tokens_RT, ages_R)
        if config.repetition_penalty > 1:
            penalise_repeated(log_probs_RV, *history, config.repetition_penalty, end)
        if config.no_repeat_ngram:
            ban_repeated(log_probs_RV, *history, config.no_repeat_ngram, end)
        if config.ban:
            bans = [self._bans[number // config.places] for number in self._numbers(rows)]
            ban_sequences(log_probs_RV, *history, bans, end)
        if self._trees:
            log_probs_RV.masked_fill_(~self._tree_rules(*history, rows).to(rows.device), -torch.inf)
        if self._placeholders:
            self._heed_placeholders(log_probs_RV, *history, rows)

    def _heed_placeholders(
        self, log_probs_RV: Tensor, tokens_RT: Tensor, ages_R: Tensor, rows: Tensor
    ) -> None:
        numbers = [number // self._config.places for number in self._numbers(rows)]
        ages = ages_R.tolist()
        paths = [path[:age] for path, age in zip(tokens_RT.tolist(), ages, strict=True)]
        wanted = [self._sentences[number].placeholders for number in numbers]
        room = [self._caps[number] - age for number, age in zip(numbers, ages, strict=True)]
        heed_placeholders(log_probs_RV, paths, wanted, room, self._end)

    def _tree_rules(self, tokens_RT: Tensor, ages_R: Tensor, rows: Tensor) -> Tensor:
        """[R, V]: what may come next where trees are written, and anything elsewhere."""
        # Each path is one token longer than some path of the step before, so older ones are of no use.
        known, self._written = self._written, {}
        trees: list[tuple[Written, TreeWanted] | None] = []
        room: list[int] = []
        assert self._beams is not None
        used = self._beams.in_use.flatten()[rows]
        for row, tokens, age, goes_on in zip(
            *(x.tolist() for x in (rows, tokens_RT, ages_R, used)), strict=True
        ):
            number = row // self._config.places
            wanted, path = self._sentences[number].tree, tuple(tokens[:age])
            room.append(self._caps[number] - age)
            if wanted is None or not goes_on:
                trees.append(None)
                continue
            before = known.get(path[:-1])
            tree = before.then(path[-1], wanted.symbols) if before and path else written(path, wanted.symbols)
            self._written[path] = tree
            trees.append((tree, wanted))
        return allowed_next(trees, room, len(self._ensemble.vocabulary), self._end)

    def _coverage(self) -> Tensor | None:
        """[B, N]: the penalty of each hypothesis for source pieces that got little attention."""
        penalty = self._config.coverage_penalty
        if not penalty:
            return None
        weights = self._ensemble.weights
        each = [w * cache.covered() for w, cache in zip(weights, self._caches, strict=True)]
        # As in GNMT more than 1 counts as 1; and the logarithm of no attention must stay finite.
        got_BNS = torch.stack(each).sum(0).clamp(torch.finfo(torch.float32).tiny, 1.0)
        pieces_BS = F.pad(self._caches[0].source_seen[:, 1:], (0, 1))  # all but the end marks
        out: Tensor = penalty * (got_BNS.log() * pieces_BS[:, None]).sum(2)
        return out

    def _must(self, sentence: Sentence, age: int, cap: int) -> int | None:
        if age >= cap:
            return self._end
        return sentence.prefix[age] if age < len(sentence.prefix) else None

    def _leave(self, beams: Beams) -> list[Done]:
        """Those that are done; they go on to have their places in the tensors until it pays to clear them."""
        self._unseen += 1
        each = zip(self._ages, self._caps, self._active, strict=True)
        # At its cap a sentence ends for sure; it must not be taken for one that goes on.
        if self._unseen < self._look_every and not any(active and age > cap for age, cap, active in each):
            return []
        self._unseen = 0
        goes_on = beams.going()
        # True > False: in search before this step, and no more.
        left = [i for i, (before, now) in enumerate(zip(self._active, goes_on, strict=True)) if before > now]
        self._active = goes_on
        found = beams.found(torch.tensor(left, device=beams.totals.device)) if left else []
        return [(self._sentences[i], one) for i, one in zip(left, found, strict=True)]

    def _clear(self, beams: Beams, others: Sequence[DecodingCache] = ()) -> None:
        """Drop what is done; the caches of `others` take its place."""
        stay = [i for i, active in enumerate(self._active) if active]
        on_device = torch.tensor(stay, dtype=torch.int64, device=beams.totals.device)
        beams.take(on_device)
        for cache, other in zip_longest(self._caches, others):
            cache.take(on_device, other)
        # Every list that has an entry a sentence, as the tensors have a row.
        for name in ("_sentences", "_ages", "_caps", "_bans", "_active"):
            values = getattr(self, name)
            setattr(self, name, [values[i] for i in stay])


def _symbols(sentence: Sentence) -> int:
    return len(sentence.placeholders.wanted) if sentence.placeholders else 0
