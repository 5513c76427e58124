"""A quasi-Newton method for clients that send vectors: three trial points in one exchange."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedsplit.arrays import EPS, Array, Mask, dots, length, matvec, norms
from fedsplit.clients.local_models import TINY, Overview, Trials
from fedsplit.clients.question import Answer
from fedsplit.dialogue import Dialogue
from fedsplit.errors import InputError
from fedsplit.methods.lbfgs import LBFGS, Pairs
from fedsplit.methods.method import Method, answers, check_settings
from fedsplit.methods.server_step import Expansions, semidefinite_solve, server_step
from fedsplit.penalties.penalty import Penalty, inside


class QuasiNewtonState(NamedTuple):
    """What the server knows."""

    x: Array  # (d,): the best point so far
    # F(x) with the penalty; inf where it is not known, as some clients have not answered at x
    F: float
    slope: Array  # (d,): a subgradient of the penalty at x; nan where none is known
    # models of the clients' costs, about where each last answered; their B_j are learnt
    models: Expansions
    value: Array  # (m,): f_j there
    H: Array  # (d, d): Σ_j B_j
    pairs: Pairs  # L-BFGS's, of the sums over all clients
    trials: Array  # (3, d): the moves to try next, by H, by the guess and by L-BFGS; nan for none
    longest: Array  # (3,): how long each of them may be
    # (d,): a subgradient of the penalty after the first of them, before it was cut to its longest;
    # nan where none is known
    ahead: Array
    gain: float  # by how much F falls with the minimisation of the models: about F(x) - F*
    unit: Array  # (d,): the first B_j are multiples of diag(unit), and lengths are in its norm
    least: Array  # (m,): the share of its trace that a Hessian begins with in B_j, at least
    reference: Array  # (d,): where the Hessians of the clients' own steps are taken
    rate: float  # their regularisation is rate·diag(unit)
    # how different clients are: 0 if all H_j are equal, 1 if they have nothing in common
    unlike: float
    # that of the next question, and of the one at which Hessians are taken anew
    number: int
    due: int
    notes: tuple[str, ...]


class Tried(NamedTuple):
    """The answers at k trial points, and what they show."""

    answer: Answer
    # (k,), (k, d): which of the three moves were tried, and these
    kinds: NDArray[np.intp]
    moves: Array
    # (m, k), (m, k, d): values and gradients after them; 0 for absent clients
    f: Array
    g: Array
    # (m, d), (m, d), (m,): the clients' own steps, 0 if they are not to be used, their Hessians
    # times these, and the rounding of changes of gradients
    w: Array
    q: Array
    noise: Array
    # (k,): where the curvature is still that of x, and where F falls enough
    near: Mask
    passed: Mask
    # the best trial, and F at the next x; inf where it is not known
    best: int
    F: float

    @property
    def good(self) -> bool:
        """Whether x moves."""
        return bool(self.passed[self.best])


@dataclass(frozen=True)
class QuasiNewton(Method[QuasiNewtonState]):
    """Partitioned quasi-Newton with three trial points in one exchange; 4d + 3 floats up.

    The server has a matrix B_j for every client's Hessian, learnt by BFGS (Griewank and Toint,
    1982). It sends the steps of three models of the pooled Hessian: T = ΣB_j; a guess G, which is
    right if clients are alike; and L-BFGS of the sums. Clients answer with value and gradient at
    all of them, and with w_j = -(H_j + M)⁻¹(∇f_j - ĝ_j) at the first, a Newton step on what the
    server did not foresee: (w_j, H_jw_j) is one more curvature pair, and as Σĝ_j = 0, the mean of
    the w_j is GIANT's direction. The best point wins, and all models learn from all points. As the
    trial points are common to all clients, ΣB_j satisfies L-BFGS's secant equations too.

    A point at which F does not fall enough is refused, and shorter steps are tried. The models of
    absent clients stay as they are; F is then not known, so that a step may be at most twice the
    last one, and is taken back where those who answered are curved more than twice as much as their
    models. With a penalty there is one point, the minimiser of the models and the penalty.

    With more than ``largest`` floats in all B_j it is ``LBFGS``, see ``suited``.

    Parameters
    ----------
    penalty : Penalty, optional
        A convex g(x) at the server; ``solve(penalty=...)`` sets it.
    largest : float
        The most floats of all B_j, m·d². 4 million are 32 MB: beyond, a round costs the server more
        than two rounds of L-BFGS.
    memory : int
        How many pairs L-BFGS remembers, as in ``LBFGS``.
    prior : float
        The B_j begin with this share of the Hessians' traces: BFGS raises a curvature with one pair
        and lowers it slowly. A client of n_j < d rows has n_j/d of that: d - n_j directions would
        have to be lowered. 0.6 to 1 differ by 4 %.
    share : float
        The clients' regularisation is the least curvature of the mean model times this share, or
        times unlike² if that is less: alike clients give Newton's step, others a short one.
    floor : float
        That curvature counts as at least this share of the largest; 1e-12 to 1e-8 are the same.
    growth : float
        Hessians are taken anew at questions 2, 3, 5, 8, 12, 18, …: always would take two to three
        times the clients' time for 2 % fewer questions.
    scaled : float
        Coordinates get units of their own if the diagonal explains the clients' Hessians better
        than this, as a logarithm, in the median: by a factor of e.
    bent : float
        Nothing is learnt from a point where the mean slope on the way differs from that of a
        quadratic by more than this share of what its curvature adds: half as much is usual where
        Huber's loss turns, and exponentials that have grown e⁶ times differ by two thirds.
    sufficient : float
        A step is taken if F falls by at least this share of what its slope promises (Armijo).
    """

    penalty: Penalty | None = None
    largest: float = 4e6
    memory: int = 100
    prior: float = 0.8
    share: float = 1.0 / 3.0
    floor: float = 1e-8
    growth: float = 1.5
    scaled: float = 1.0
    bent: float = 0.67
    sufficient: float = 1e-4

    newton_may_finish = True
    state_type = QuasiNewtonState
    may_be_zero = ("largest", "scaled")

    def __post_init__(self) -> None:
        check_settings(self)

    def described(self) -> str:
        return "quasi-Newton by vectors: clients send gradients and a local step"

    def suited(self, m: int, d: int) -> Method[Any]:
        if m * d**2 <= self.largest:
            return self
        return LBFGS(self.memory, self.sufficient, wait=True, penalty=self.penalty)

    # the hooks of the loop

    def iterate(self, state: QuasiNewtonState) -> Array:
        result: Array = state.x + state.trials[0]
        return result

    def step_of(self, state: QuasiNewtonState) -> Array:
        diagonal = np.diag(state.H)
        return 1.0 / np.where(diagonal > 0, diagonal, 1.0)

    def subgradient(self, state: QuasiNewtonState) -> Array | None:
        return state.slope if np.isfinite(state.slope).all() else None

    def values(self, state: QuasiNewtonState) -> Array | None:
        return state.value if math.isfinite(state.F) else None

    def smooth_value(self, state: QuasiNewtonState) -> float:
        return float(state.value.sum()) if state.models.heard.all() else math.nan

    def in_units_of_F(self, state: QuasiNewtonState, move: Array) -> float:  # noqa: N802
        return 0.5 * float(move @ state.H @ move)

    def expected_gap(self, before: QuasiNewtonState, after: QuasiNewtonState) -> float:
        return after.gain if after.models.heard.all() else math.inf

    def notes(self, state: QuasiNewtonState) -> tuple[str, ...]:
        return state.notes

    def without(self, state: QuasiNewtonState, kept: Mask) -> QuasiNewtonState:
        # What L-BFGS knows is about the sum over all. The others' shares of a ridge have changed:
        # they are asked about x once more, and their B_j are as good as before.
        state = self.resume(
            state._replace(
                models=state.models.of(kept),
                value=state.value[kept],
                least=state.least[kept],
                pairs=Pairs.none(len(state.x)),
            )
        )
        again = np.full_like(state.trials, np.nan)
        again[0] = 0.0
        return state._replace(F=math.inf, trials=again, ahead=state.slope)

    def resume(self, state: QuasiNewtonState) -> QuasiNewtonState:
        """The state to continue from under this method's penalty; no client is asked."""
        F = math.inf
        if state.models.are_at(state.x):
            F = self.penalised(float(state.value.sum()), state.x)
        unknown = np.full_like(state.x, 0.0 if self.penalty is None else np.nan)
        return self._ahead(state._replace(F=F, slope=unknown, longest=np.full(3, math.inf)))

    # the dialogue

    def start(self, x0: Array, m: int) -> Dialogue[QuasiNewtonState]:
        x, answer, notes = yield from self._overview(inside(self.penalty, x0), m)
        here = answer.present
        d = len(x)
        D = answer.parts["diagonal"][here]
        unit = self._unit(D, answer.parts["gain"][here])
        traces = np.zeros(m)
        traces[here] = D @ (1.0 / unit)
        gradient = np.where(here[:, None], answer.parts["gradient"], 0.0)
        # Where no cost is curved, as Huber's far away, a first step of length 1 is as good as any.
        mean = traces[here].mean() or d * length(gradient.sum(axis=0)) or 1.0
        # A Huber client whose residuals are all beyond the kink has no curvature at all.
        traces = np.where(here, np.maximum(traces, TINY * mean), mean)
        least = self.prior * np.where(here, answer.parts["rank"], 1.0)
        B = (least * traces / d)[:, None, None] * np.diag(unit)
        value = np.where(here, answer.parts["value"], 0.0)
        models = Expansions(np.tile(x, (m, 1)), gradient, B, here)
        unknown = np.zeros(d) if self.penalty is None else np.full(d, np.nan)
        state = QuasiNewtonState(
            x, math.inf, unknown, models, value, models.hessian(), Pairs.none(d),
            np.full((3, d), np.nan), np.full(3, math.inf), unknown, math.inf, unit, least, x,
            rate=1.0, unlike=1.0, number=2, due=2, notes=notes,
        )  # fmt: skip
        first = np.diag(traces.sum() / d * unit)
        move = server_step(x, models.gradient(x), first, self.penalty)[0] - x
        state.longest[0] = length(move * np.sqrt(unit))
        if not answer.complete:
            return self._ahead(state)
        # The first question is about the local steps at x; beside it a gradient step is tried.
        return state._replace(
            F=self.penalised(float(value.sum()), x),
            trials=np.stack([0.0 * x, np.full(d, np.nan), move]),
        )

    def update(self, state: QuasiNewtonState) -> Dialogue[QuasiNewtonState]:
        renewed = state.number >= state.due
        if renewed:
            state = self._renewed(state)
        second, third = (
            None if np.isnan(move).any() else state.x + move for move in state.trials[1:]
        )
        x = state.x + state.trials[0]
        prediction = self._prediction(state)
        shift = state.rate if (state.unit == 1.0).all() else state.rate * state.unit
        reference = None if renewed else state.reference
        answer: Answer = yield Trials(x, second, third, prediction, shift, reference)
        tried = self._tried(state, prediction, answer)
        state = self._moved(state, tried)._replace(number=state.number + 1)
        if not tried.near[0]:
            state = state._replace(due=state.number)
        here = answer.present
        return self._ahead(state, tried.w[here], tried.q[here], answer.complete)

    def _renewed(self, state: QuasiNewtonState) -> QuasiNewtonState:
        """With the next point as the reference, and a regularisation that suits the models."""
        root = np.sqrt(state.unit)
        spectrum = np.linalg.eigvalsh(state.H / np.outer(root, root))
        least = max(float(spectrum[0]), self.floor * float(spectrum[-1]))
        rate = min(self.share, state.unlike**2) * least
        # below that, the systems of clients with few rows would be singular to rounding
        rate = max(rate, 1e-2 * self.floor * float(spectrum[-1])) / len(state.least)
        due = math.ceil(self.growth * state.number)
        return state._replace(reference=state.x + state.trials[0], rate=rate, due=due)

    def _prediction(self, state: QuasiNewtonState) -> Array:
        """What the models have for ∇f_j after the first move, less their mean, (m, d).

        Their sum is then 0 with a subgradient of the penalty, so that the mean of the w_j is a step
        of the whole F.
        """
        models = state.models
        m, d = models.p.shape
        moved = matvec(models.B, np.broadcast_to(state.trials[0], (m, d)))
        prediction = models.gradients(state.x) + moved
        prediction = prediction - prediction.mean(axis=0) - np.nan_to_num(state.ahead) / m
        return np.where(models.heard[:, None], prediction, 0.0)

    def _tried(self, state: QuasiNewtonState, prediction: Array, answer: Answer) -> Tried:
        """What the answers show."""
        here = answer.present
        kinds = np.flatnonzero(np.isfinite(state.trials).all(axis=1))
        moves = state.trials[kinds]
        if np.isnan(answer.parts["values"][here]).any():
            raise FloatingPointError("answers are not finite")
        f = np.where(here[:, None], answer.parts["values"], 0.0)
        g = np.where(here[:, None, None], answer.parts["gradients"], 0.0)
        near = self._near(state, moves, f, g, here & state.models.heard)
        w = np.where(near[0] & here[:, None], answer.parts["step"], 0.0)
        q = prediction - g[:, 0] - state.rate * state.unit * w  # H_jw_j
        noise = 1e3 * EPS * (norms(g[:, 0]) + norms(prediction))
        judged = self._judged(state, moves, f, answer)
        return Tried(answer, kinds, moves, f, g, w, q, noise, near, *judged)

    def _learnt(self, state: QuasiNewtonState, tried: Tried) -> Array:
        """B_j after all pairs of moves and changes of gradients, the most trusted last."""
        models, moves, g, best = state.models, tried.moves, tried.g, tried.best
        here = tried.answer.present
        known = here & models.heard
        points = state.x + moves
        base, usable = (models.p, models.y), known
        if tried.good:
            base, usable = (points[best], g[:, best]), here
        S, Y = [tried.w], [tried.q]
        for i in range(len(moves)):
            if i != best or not tried.good:
                S.append((usable & tried.near[i])[:, None] * (points[i] - base[0]))
                Y.append(g[:, i] - base[1])
        if tried.good:
            S.append(known[:, None] * (points[best] - models.p))
            Y.append(g[:, best] - models.y)
        B = bfgs(models.B, np.stack(S, axis=1), np.stack(Y, axis=1), tried.noise)
        if tried.near[0] and "trace" in tried.answer.parts:
            # a Hessian that has grown is not to be found out direction by direction
            traces = np.where(here, state.rate * tried.answer.parts["trace"], 0.0)
            diagonals = np.einsum("kii->ki", B)
            lacking = np.maximum(state.least * traces - diagonals @ (1.0 / state.unit), 0.0)
            diagonals += lacking[:, None] * state.unit / len(state.x)
        return B

    def _with_pairs(self, state: QuasiNewtonState, tried: Tried) -> Pairs:
        """L-BFGS's pairs after the trials, the way from x last."""
        pairs = state.pairs
        if tried.answer.complete:
            best, moves, totals = tried.best, tried.moves, tried.g.sum(axis=0)
            for i in [i for i in np.flatnonzero(tried.passed).tolist() if i != best]:
                pairs = pairs.added(moves[i] - moves[best], totals[i] - totals[best], self.memory)
            if tried.good:
                change = totals[best] - state.models.gradients(state.x).sum(axis=0)
                pairs = pairs.added(moves[best], change, self.memory)
        return pairs

    def _moved(self, state: QuasiNewtonState, tried: Tried) -> QuasiNewtonState:
        """At the best point, if F falls enough there, with what all points have taught."""
        models, best = state.models, tried.best
        here, complete = tried.answer.present, tried.answer.complete
        lengths = np.full(3, math.inf)
        lengths[tried.kinds] = norms(tried.moves * np.sqrt(state.unit))
        longest = np.where(lengths > 0, 0.25 * lengths, math.inf)
        x, slope = state.x, state.slope
        point = x + tried.moves[best]
        fresh = here & ~models.heard
        if tried.good:
            if tried.moves[best].any():  # at the start, the first move is none
                longest = np.full(3, math.inf)
            if not complete:
                usual = state.longest[0] if math.isfinite(state.longest[0]) else lengths[0]
                longest[0] = max(2.0 * lengths[0], 0.5 * usual if lengths[0] > 0 else usual)
            x = point
            if self.penalty is not None:
                whole = tried.kinds[best] == 0 and lengths[0] < (1.0 - 1e-9) * state.longest[0]
                slope = state.ahead if whole else np.full_like(slope, np.nan)
            fresh = here
        elif not complete:
            # Models that are far off would be so again, but for gradients beside which those of x
            # are rounding.
            fresh = fresh | (here & (norms(tried.g[:, best]) <= 1e6 * norms(models.y).max()))
        own = fresh & np.isfinite(tried.f[:, best])
        return state._replace(
            x=x,
            F=tried.F,
            slope=slope,
            models=Expansions(
                np.where(own[:, None], point, models.p),
                np.where(own[:, None], tried.g[:, best], models.y),
                self._learnt(state, tried),
                models.heard | own,
            ),
            value=np.where(own, tried.f[:, best], state.value),
            pairs=self._with_pairs(state, tried),
            longest=longest,
        )

    def _near(self, state: QuasiNewtonState, moves: Array, f: Array, g: Array, known: Mask) -> Mask:
        """Which trials are near enough for their curvature to be that of x.

        For a quadratic, the mean of the slopes at both ends of a move is the mean slope on the way.
        """
        p, y = state.models.p[known], state.models.y[known]
        rounding = 16.0 * EPS * float(np.abs(state.value).sum())
        near = []
        for i, move in enumerate(moves):
            way = state.x + move - p
            bent = 0.5 * float(dots(g[known, i] - y, way).sum())
            mean = 0.5 * float(dots(g[known, i] + y, way).sum())
            risen = float((f[known, i] - state.value[known]).sum())
            near.append(abs(risen - mean) <= self.bent * bent + rounding)
        return np.array(near)

    def _judged(
        self, state: QuasiNewtonState, moves: Array, f: Array, answer: Answer
    ) -> tuple[Mask, int, float]:
        """Which trials are good enough, which is best, and F at the next x."""
        models = state.models
        F = np.array(
            [self.penalised(v, state.x + z) for v, z in zip(f.sum(axis=0), moves, strict=True)]
        )
        if answer.complete:
            promised = moves @ models.gradient(state.x)
            if self.penalty is not None:
                after = [self.penalty.value(state.x + z) for z in moves]
                promised = promised + after - self.penalty.value(state.x)
            enough = state.F + self.sufficient * np.minimum(promised, 0.0)
            passed = enough + 16.0 * EPS * np.abs(F) >= F
            if math.isinf(state.F):
                passed = np.isfinite(F)
            best = int(F.argmin())
            return passed, best, float(F[best] if passed[best] else state.F)
        # Along the way, those who answered may be curved twice as much as their models.
        known = answer.present & models.heard
        way = state.x + moves[0] - models.p[known]
        linear = float((state.value[known] + dots(way, models.y[known])).sum())
        curved = float(dots(way, matvec(models.B[known], way)).sum())
        rounding = 16.0 * EPS * float(np.abs(state.value).sum())
        fine = np.isfinite(F[:1]) & (f[known, 0].sum() <= linear + curved + rounding)
        return np.concatenate([fine, np.zeros(len(moves) - 1, dtype=bool)]), 0, math.inf

    def _ahead(
        self,
        state: QuasiNewtonState,
        w: Array | None = None,
        q: Array | None = None,
        complete: bool = False,
    ) -> QuasiNewtonState:
        """The state with the next trials, given the clients' steps w_j and H_jw_j."""
        x, models = state.x, state.models
        g = models.gradient(x)
        H = models.hessian()
        to, ahead = server_step(x, g, H, self.penalty)
        moves = np.full((3, len(x)), np.nan)
        moves[0] = to - x
        gain = -float(moves[0] @ g + 0.5 * moves[0] @ H @ moves[0])
        if self.penalty is not None:
            gain += self.penalty.value(x) - self.penalty.value(to)
        unlike = state.unlike
        if w is not None and q is not None and len(w):
            mean, total = w.mean(axis=0), q.sum(axis=0)
            crossed = w @ total / len(w)
            sizes = float(np.sum(np.abs(q @ mean) + np.abs(crossed)))
            if sizes > 0:
                unlike = float(np.sum(np.abs(q @ mean - crossed))) / sizes
            if complete and self.penalty is None:
                guess = bfgs(H[None], mean[None, None], total[None, None], np.zeros(1))[0]
                moves[1] = -semidefinite_solve(guess, g, downhill=True)
                if len(state.pairs.moves):
                    moves[2] = -state.pairs.solve(g)
        lengths = norms(moves * np.sqrt(state.unit))
        cut = lengths > state.longest
        moves[cut] *= (state.longest[cut] / lengths[cut])[:, None]
        return state._replace(H=H, trials=moves, ahead=ahead, gain=abs(gain), unlike=unlike)

    def _overview(self, x: Array, m: int) -> Dialogue[tuple[Array, Answer, tuple[str, ...]]]:
        """Where to start, the first answer there, and what the user should know.

        A start far away, where costs are steep, tells nothing about the curvature at the optimum:
        if the objective is less at 0, the run starts there, for one more question. Where only some
        clients are asked at a time, all are waited for: steps by the first few would go far.
        """
        answer = yield from answers(Overview(x, origin=bool(x.any())), most=20 * m)
        here = answer.present
        if not here.any():
            raise InputError("no client answered the first question, however often it was asked")
        notes: tuple[str, ...] = ()
        if "value_at_0" in answer.parts:
            at_zero = self.penalised(float(answer.parts["value_at_0"][here].sum()), 0.0 * x)
            if not self.penalised(float(answer.parts["value"][here].sum()), x) <= at_zero:
                x, answer, _ = yield from self._overview(0.0 * x, m)
                why = "where the objective is less than at the x0 that was passed"
                notes = (f"the run starts at 0, {why}",)
        if not np.isfinite(answer.parts["diagonal"][answer.present]).all():
            raise InputError(
                "no step follows from the curvature at the start, which is not finite: "
                "pass another x0"
            )
        return x, answer, notes

    def _unit(self, D: Array, gain: Array) -> Array:
        """The units of curvature, (d,), from diagonals of Hessians, (k, d), and what these explain.

        They are those of the columns if clients agree on them: most of the variance is common.
        """
        d = D.shape[1]
        logs = np.log(np.maximum(D, TINY**2 * D.mean(axis=1, keepdims=True) + 1e-300))
        common = np.var(logs.mean(axis=0)) > 0.5 * np.var(logs, axis=1).mean()
        pooled = D.sum(axis=0)
        if not (common and np.median(gain) > self.scaled):
            return np.ones(d)
        result: Array = np.where(pooled > 0, pooled, pooled.mean()) / pooled.mean()
        return result


def bfgs(B: Array, S: Array, Y: Array, noise: Array, least: float = 1e-10) -> Array:
    """B + yyᵀ/sᵀy - Bs(Bs)ᵀ/sᵀBs for every client, (m, d, d), with its pairs, (m, k, d), in turn.

    A pair without curvature, sᵀy ≤ least·‖s‖‖y‖, is skipped, and so is one that drowns in the
    rounding of the gradients that y is a difference of, ``noise``, (m,).
    """
    m, k, d = S.shape
    # All of B is read twice and written once: the pairs before a pair are known by their vectors.
    products = np.matmul(S, B)
    rows = np.zeros((m, 2 * k, d))
    weights = np.zeros((m, 2 * k))
    for i in range(k):
        s, y = S[:, i], Y[:, i]
        earlier = rows[:, : 2 * i]
        Bs = products[:, i] + matvec(
            np.swapaxes(earlier, 1, 2), weights[:, : 2 * i] * matvec(earlier, s)
        )
        sy, sBs = dots(s, y), dots(s, Bs)
        usable = (sy > least * norms(s) * norms(y)) & (norms(y) > noise) & (sBs > 0)
        rows[:, 2 * i] = y
        rows[:, 2 * i + 1] = Bs
        weights[:, 2 * i] = np.where(usable, 1.0 / np.where(usable, sy, 1.0), 0.0)
        weights[:, 2 * i + 1] = np.where(usable, -1.0 / np.where(usable, sBs, 1.0), 0.0)
    learnt: Array = np.matmul(np.swapaxes(weights[:, :, None] * rows, 1, 2), rows)
    learnt += B
    return learnt
