"""Methods whose clients send vectors: questions, floats and time to a gap, beside ``QuasiNewton``.

Every finished run is one line of a file, and a restart goes on with the others. Problems are in two
sets: the numbers of the method were chosen on ``tuning``, and ``held-out`` was drawn afterwards,
with other sizes, spectra and seeds.

``python benchmarks/vectors.py --subset`` takes an hour on two cores; ``--against CHECKOUT`` adds
``FedSplitVectors`` of an older version, which is run in a process of its own.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

import fedsplit as fs
from fedsplit.arrays import Array, Mask
from fedsplit.clients.oracle import Clients
from fedsplit.clients.question import Answer, CostQuestion
from fedsplit.clients.questions import Value
from fedsplit.data.splitting import split_rows
from fedsplit.loop.trace import Row
from measuring import head, row

ANY: Any = fs
"""With names that this version does not have."""

GAPS = (1e-6, 1e-10)
"""Of F(x) - F*, relative to F(0) - F*."""

LOSSES: Mapping[str, Callable[[], Any]] = {
    "LS": fs.LeastSquares,
    "logistic": fs.Logistic,
    "Huber": lambda: fs.Huber(0.1),
    "Poisson": fs.Poisson,
    "gamma": fs.Gamma,
}

SHAPES = {
    "a9a": (32561, (16, 9, 5, 16, 7, 15, 6, 5, 2, 5, 3, 5, 29)),
    "w8a": (49749, (25,) * 12),
    "phishing": (11055, (2,) * 22 + (3,) * 8),
    "mushrooms": (8124, (6, 4, 10, 2, 9, 2, 2, 2, 12, 2, 5, 4, 4, 9, 9, 4, 3, 5, 9, 6, 3)),
}
"""Rows, and the levels of each group of dummies: about those of LIBSVM's files."""

PENALTIES: Mapping[str, Callable[[int, float], fs.Penalty]] = {
    "lasso": lambda d, size: fs.L1(0.05 * size),
    "group lasso": lambda d, size: fs.GroupL1(
        0.1 * size, [range(i, min(i + 5, d)) for i in range(0, d, 5)]
    ),
    "box": lambda d, size: fs.Box(-0.5 / math.sqrt(d), 0.5 / math.sqrt(d)),
    "simplex": lambda d, size: fs.Simplex(1.0),
    "NNLS": lambda d, size: fs.NonNegative(),
}

METHODS: Mapping[str, Callable[[], Any]] = {
    "quasi-newton": lambda: fs.QuasiNewton(),
    "L-BFGS(10)": lambda: fs.LBFGS(10),
    "L-BFGS(100)": lambda: fs.LBFGS(100),
    "GIANT": fs.GIANT,
    "Newton": fs.Newton,
    "AGD": fs.AGD,
    "information": fs.FedSplitInformation,
    "solve": lambda: None,
    "secants": lambda: ANY.FedSplitVectors(),  # of an older version alone
    "Anderson": lambda: ANY.FedSplitVectors(accelerate=ANY.Anderson()),
}

MATRICES = ("Newton", "information", "solve")
"""They send matrices: shown, but no rivals of a method that does not."""

OLDER = ("secants", "Anderson")


@dataclass(frozen=True)
class Setting:
    """One problem of the table, but for its seed.

    Parameters
    ----------
    kind : str
        A loss, or the shape of a file of 0/1 rows.
    m, n, d : int
        Clients, rows of each, and columns; of 0/1 rows m alone.
    kappa : float
        The condition number of a client's Hessian, but for the noise of few rows.
    own : bool
        Whether every client has eigenvectors of its own.
    unlike : float
        How much the clients' optima and sizes differ.
    scales : float
        Columns are on scales of up to 10 to this.
    ridge : float
        Per row, relative to the least curvature, or absolute for 0/1 rows.
    split : str
        Of 0/1 rows.
    penalty : str
    share : float
        Participation.
    same : bool
        Whether all clients have the same rows, and so the same Hessians.
    """

    kind: str
    m: int
    n: int = 0
    d: int = 0
    kappa: float = 1e2
    own: bool = False
    unlike: float = 0.5
    scales: float = 0.0
    ridge: float = 1e-3
    split: str = ""
    penalty: str = ""
    share: float = 1.0
    same: bool = False

    def __str__(self) -> str:
        if self.split:
            text = f"{self.kind} m{self.m} {self.split} {self.ridge:g}"
        else:
            text = (
                f"{self.kind} m{self.m} n{self.n} d{self.d} κ{self.kappa:g} unlike {self.unlike:g}"
            )
        words = [
            "own" * self.own,
            "same" * self.same,
            f"scales 1e{self.scales:g}" * (self.scales > 0),
            "no ridge" * (self.ridge == 0.0),
            self.penalty,
            f"{100 * self.share:g} %" * (self.share < 1.0),
        ]
        return " ".join([text, *filter(None, words)])

    @property
    def floats(self) -> float:
        """m·d², by which the subset leaves out the largest."""
        d = sum(SHAPES[self.kind][1]) if self.split else self.d
        return self.m * d**2

    def problem(self, seed: int) -> fs.Problem:
        return self._dummies(seed) if self.split else self._designs(seed)

    def _designs(self, seed: int) -> fs.Problem:
        rng = np.random.default_rng([seed, self.m, self.n, self.d])
        d = self.d
        root = np.geomspace(1.0, self.kappa**-0.5, d)
        Q = fs.ensembles.haar(d, d, rng)
        x = rng.standard_normal(d) / math.sqrt(d)
        units = 10.0 ** rng.uniform(-self.scales, self.scales, size=d)
        data = []
        first: Array | None = None
        for _ in range(self.m):
            basis = fs.ensembles.haar(d, d, rng) if self.own else Q
            A: Array = rng.standard_normal((self.n, d)) @ (root[:, None] * basis.T) * units
            A = A * math.exp(self.unlike * rng.standard_normal())
            first = A if first is None else first
            if self.same:
                A = first
            eta = (A / units) @ (x + self.unlike * rng.standard_normal(d) / math.sqrt(d))
            data.append((A, self._responses(eta, rng)))
        ridge = self.ridge * self.n * self.m / self.kappa / units**2
        return fs.Problem(LOSSES[self.kind](), data, ridge)

    def _responses(self, eta: Array, rng: np.random.Generator) -> Array:
        mean = np.exp(np.clip(eta, -4.0, 3.0))
        if self.kind == "logistic":
            return np.where(rng.logistic(size=len(eta)) < 3.0 * eta, 1.0, -1.0)
        if self.kind == "Poisson":
            return rng.poisson(mean).astype(float)
        if self.kind == "gamma":
            return rng.gamma(2.0, mean / 2.0) + 1e-3
        return eta + 0.1 * rng.standard_t(3, size=len(eta))

    def _dummies(self, seed: int) -> fs.Problem:
        rng = np.random.default_rng([seed, self.m])
        n, groups = SHAPES[self.kind]
        columns, first = [], 0
        for levels in groups:
            shares = rng.dirichlet(0.5 * np.ones(levels))
            columns.append(first + rng.choice(levels, p=shares, size=n))
            first += levels
        places = np.stack(columns, axis=1)
        x = rng.standard_normal(first)
        eta = x[places].sum(axis=1)
        b = np.where(rng.logistic(size=n) < eta - np.median(eta) - 1.0, 1.0, -1.0)
        rows = np.repeat(np.arange(n), len(groups))
        A = sparse.csr_array((np.ones(len(rows)), (rows, places.ravel())), shape=(n, first))
        if self.split == "dirichlet":
            parts = _dirichlet(b, self.m, rng)
        else:
            parts = split_rows(b, self.m, self.split, seed)
        return fs.Problem(fs.Logistic(), [(A[own], b[own]) for own in parts], self.ridge * n)

    def penalised(self, problem: fs.Problem) -> fs.Penalty | None:
        if not self.penalty:
            return None
        x = np.zeros(problem.d)
        gradient = problem.clients.ask(fs.questions.Gradient(x)).rows.sum(axis=0)
        return PENALTIES[self.penalty](problem.d, float(np.abs(gradient).max()))


def _dirichlet(b: Array, m: int, rng: np.random.Generator) -> list[Any]:
    """The rows of every client that has any: its shares of the classes are Dirichlet(0.1)."""
    owner = np.empty(len(b), dtype=int)
    for label in np.unique(b):
        shares = rng.dirichlet(np.full(m, 0.1))
        owner[b == label] = rng.choice(m, p=shares, size=int((b == label).sum()))
    return [np.flatnonzero(owner == j) for j in np.unique(owner)]


S = Setting
SETS: Mapping[str, list[Setting]] = {
    "tuning": [
        S("LS", 12, 300, 60, 1e2), S("LS", 12, 300, 60, 1e4), S("LS", 12, 300, 60, 1e6),
        S("LS", 12, 300, 60, 1e4, own=True), S("LS", 5, 400, 100, 1e6, own=True),
        S("LS", 12, 60, 100, 1e3), S("LS", 12, 100, 100, 10.0), S("LS", 142, 10, 100, 1e2),
        S("LS", 12, 300, 60, 1e4, unlike=0.0), S("LS", 12, 300, 60, 1e4, same=True),
        S("LS", 30, 60, 30, 1e2, scales=2.0), S("logistic", 12, 200, 30, 1e2, scales=2.0),
        S("logistic", 12, 300, 60, 1e4, unlike=1.0), S("logistic", 142, 40, 50, 1e2),
        S("logistic", 12, 50, 60, 1e2, ridge=0.1), S("logistic", 1000, 20, 30, 1e1),
        S("Huber", 30, 50, 50, 1e2), S("Huber", 100, 50, 100, 1e1, unlike=0.1),
        S("Poisson", 12, 300, 30, 1e2), S("Poisson", 142, 40, 30, 1e1, unlike=1.0),
        S("gamma", 12, 300, 30, 1e2), S("gamma", 40, 60, 30, 1e3, unlike=0.1),
        S("LS", 12, 400, 40, 1e3, ridge=0.0), S("LS", 8, 20, 200, 10.0, ridge=0.0),
        S("a9a", 12, split="iid"), S("a9a", 12, split="dirichlet", ridge=1e-5),
        S("w8a", 12, split="label"), S("phishing", 12, split="iid", ridge=1e-5),
        S("phishing", 142, split="dirichlet"), S("mushrooms", 5, split="dirichlet", ridge=1e-5),
        S("mushrooms", 12, split="label"), S("mushrooms", 142, split="iid"),
        S("LS", 12, 100, 100, 10.0, penalty="lasso"), S("LS", 12, 400, 60, 1e3, penalty="lasso"),
        S("logistic", 12, 200, 60, 1e2, penalty="lasso"), S("LS", 12, 200, 60, 1e3, penalty="NNLS"),
        S("LS", 12, 200, 60, 1e3, penalty="box"), S("LS", 12, 200, 60, 1e2, penalty="simplex"),
        S("logistic", 12, 200, 60, 1e2, penalty="group lasso"),
        S("logistic", 60, 50, 20, 1e2, share=0.1), S("LS", 60, 50, 20, 1e3, share=0.1),
        S("Poisson", 60, 60, 20, 1e1, share=0.1),
    ],
    "held-out": [
        S("LS", 20, 200, 80, 1e3), S("LS", 9, 500, 50, 1e5), S("LS", 20, 200, 40, 1e5, own=True),
        S("LS", 30, 40, 80, 1e2), S("LS", 20, 50, 50, 1e2), S("LS", 200, 8, 60, 1e1),
        S("LS", 7, 200, 40, 1e5, same=True), S("LS", 10, 200, 70, 1e3, unlike=1.0),
        S("LS", 20, 80, 40, 1e1, scales=3.0), S("Poisson", 15, 200, 25, 1e1, scales=1.5),
        S("logistic", 20, 150, 80, 1e3), S("logistic", 100, 60, 40, 1e3, unlike=1.0),
        S("logistic", 25, 30, 60, 1e1, ridge=0.05), S("logistic", 1000, 15, 40, 1e2),
        S("Huber", 20, 120, 40, 1e3), S("Huber", 142, 30, 60, 1e1, unlike=0.2),
        S("Poisson", 30, 100, 50, 1e2, unlike=0.2), S("Poisson", 8, 500, 40, 1e3),
        S("gamma", 20, 200, 50, 1e2, unlike=1.0), S("gamma", 142, 30, 25, 1e1),
        S("logistic", 10, 300, 40, 1e3, ridge=0.0, unlike=0.2),
        S("LS", 10, 15, 100, 1e2, ridge=0.0),
        S("a9a", 30, split="label", ridge=1e-4), S("a9a", 142, split="dirichlet"),
        S("w8a", 20, split="iid", ridge=1e-4), S("w8a", 12, split="dirichlet"),
        S("phishing", 30, split="label"), S("phishing", 60, split="dirichlet", ridge=1e-4),
        S("mushrooms", 40, split="dirichlet"), S("mushrooms", 8, split="iid", ridge=1e-5),
        S("LS", 20, 60, 60, 1e2, penalty="lasso"), S("Poisson", 12, 200, 40, 1e1, penalty="lasso"),
        S("logistic", 20, 100, 50, 1e2, penalty="box"), S("LS", 20, 100, 50, 1e4, penalty="NNLS"),
        S("LS", 15, 200, 40, 1e3, penalty="group lasso"),
        S("LS", 9, 200, 40, 1e3, penalty="simplex"),
        S("logistic", 100, 40, 25, 1e2, share=0.1), S("gamma", 50, 60, 20, 1e1, share=0.1),
        S("LS", 40, 60, 30, 1e2, share=0.1),
    ],
    "large": [
        S("LS", 1000, 40, 100, 1e3), S("logistic", 10_000, 20, 30, 1e1),
        S("logistic", 20, 200, 2000, 1e2, ridge=0.1), S("logistic", 5, 400, 5000, 1e1, ridge=0.1),
        S("LS", 142, 60, 300, 1e3), S("logistic", 20, 100, 1000, 1e2, ridge=0.1, penalty="lasso"),
        S("a9a", 1000, split="iid"), S("w8a", 142, split="label"),
    ],
}  # fmt: skip


class Timed(Clients):
    """Clients whose processor time is counted, but for measurements."""

    def __init__(self, clients: Clients) -> None:
        super().__init__(clients)
        self.hessians = clients.hessians
        self._clients = clients
        self.seconds = 0.0
        self.measuring = 0.0

    def _timed(self, question: CostQuestion, ask: Callable[[], Answer]) -> Answer:
        began = time.process_time()
        answer = ask()
        spent = time.process_time() - began
        if isinstance(question, Value):
            self.measuring += spent
        else:
            self.seconds += spent
        return answer

    def ask(self, question: CostQuestion) -> Answer:
        return self._timed(question, lambda: self._clients.ask(question))

    def ask_some(self, question: CostQuestion, drawn: Mask) -> Answer:
        return self._timed(question, lambda: self._clients.ask_some(question, drawn))


@dataclass(frozen=True)
class Run:
    """What a method took; inf where it did not get there.

    Attributes
    ----------
    questions, up, down : tuple of float
        For each gap; floats per client.
    client, server : float
        Processor seconds until the smallest gap, or the end.
    """

    set: str
    setting: str
    seed: int
    method: str
    questions: tuple[float, ...]
    up: tuple[float, ...]
    down: tuple[float, ...]
    client: float
    server: float


def reference(setting: Setting, seed: int, problem: fs.Problem) -> tuple[float, float]:
    """F(0) and F*, with the penalty."""
    penalty = setting.penalised(problem)
    origin = problem.objective(np.zeros(problem.d))
    if penalty is None:
        return origin, problem.objective(problem.solution())
    method = fs.FedSplitInformation(largest=1e9) if problem.d <= 500 else fs.LBFGS()
    best = fs.solve(problem, method, penalty=penalty, tol=1e-14, rounds=500)
    inside = penalty.prox(np.zeros(problem.d), 1.0)  # 0 may be outside
    start = problem.objective(inside) + penalty.value(inside)
    return start, float(np.nanmin(best.trace.objective))


def measure(which: str, setting: Setting, seed: int, name: str, most: int, cap: float) -> Run:
    """Run a method until both gaps are reached, or for ``cap`` processor seconds."""
    problem = setting.problem(seed)
    origin, best = reference(setting, seed, problem)
    clients = Timed(problem.clients)
    began = time.process_time()

    def near(last: Row, state: Any) -> bool:
        reached = last.objective - best <= GAPS[-1] * (origin - best)
        return reached or time.process_time() - began > cap

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            result = fs.solve(
                clients,
                METHODS[name](),
                tol=0,
                rounds=most,
                x0=np.zeros(problem.d),
                penalty=setting.penalised(problem),
                participation=setting.share,
                seed=seed,
                callbacks=[near],
            )
        except fs.Diverged as error:
            result = error.result
    total = time.process_time() - began
    trace = result.trace
    ends: list[float] = []
    for gap in GAPS:
        reached = np.flatnonzero(trace.objective - best <= gap * (origin - best))
        ends.append(float(reached[0]) + 1.0 if len(reached) else math.inf)
    up, down = (
        [math.inf if math.isinf(end) else float(sent[: int(end)].sum()) / problem.m for end in ends]
        for sent in (trace.floats_up, trace.floats_down)
    )
    server = total - clients.seconds - clients.measuring
    return Run(
        which, str(setting), seed, name, tuple(ends), tuple(up), tuple(down),
        round(clients.seconds, 4), round(server, 4),
    )  # fmt: skip


def names_for(setting: Setting, older: bool) -> list[str]:
    """The methods that can solve it."""
    if setting.share < 1.0:
        names = ["quasi-newton"]
    elif setting.penalty:
        names = ["quasi-newton", "L-BFGS(100)", "AGD", "information"]
    else:
        names = ["quasi-newton", "L-BFGS(10)", "L-BFGS(100)", "GIANT", "Newton", "solve"]
    d = setting.d or sum(SHAPES[setting.kind][1])
    if d > 500:
        names = [name for name in names if name not in ("Newton", "GIANT", "information")]
    return names + [name for name in OLDER if older and (name == "secants" or setting.share == 1.0)]


def read(path: Path) -> list[Run]:
    """The runs of a file."""
    if not path.exists():
        return []
    return [Run(**json.loads(line)) for line in path.read_text().splitlines()]


def runs(options: argparse.Namespace) -> Iterator[Run]:
    """Those of the file, and the others as they end."""
    path = Path(options.file)
    done = {(each.setting, each.seed, each.method): each for each in read(path)}
    for which in options.sets:
        for setting in SETS[which]:
            if options.subset and setting.floats > 4e6:
                continue
            # seeds of the sets differ, so that no rows of the one are in the other
            for seed in range(options.seeds):
                seed += 1000 * list(SETS).index(which)
                for name in names_for(setting, bool(options.against)):
                    if options.only and name not in options.only:
                        continue
                    key = (str(setting), seed, name)
                    if key not in done:
                        done[key] = _fresh(options, which, setting, seed, name)
                        with path.open("a") as file:
                            file.write(json.dumps(done[key].__dict__) + "\n")
                    yield done[key]


def _fresh(options: argparse.Namespace, which: str, setting: Setting, seed: int, name: str) -> Run:
    """One run, in a process of its own where it is of another version."""
    place = SETS[which].index(setting)
    if name not in OLDER:
        return measure(which, setting, seed, name, options.most, options.cap)
    own = [which, str(place), str(seed), name, str(options.most), str(options.cap)]
    environment = os.environ | {"PYTHONPATH": str(Path(options.against) / "src")}
    command = [sys.executable, __file__, "--child", *own]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if ended.returncode:
        raise RuntimeError(ended.stderr)
    return Run(**json.loads(ended.stdout.splitlines()[-1]))


def report(found: list[Run]) -> None:
    """Print the tables."""
    groups: dict[tuple[str, str, int], dict[str, Run]] = {}
    for each in found:
        groups.setdefault((each.set, each.setting, each.seed), {})[each.method] = each
    for which in dict.fromkeys(key[0] for key in groups):
        head(f"{which}: problem", "questions to 1e-6/1e-10", "floats up", "best rival", "ratio")
        ratios: list[list[float]] = [[], []]
        floats: list[float] = []
        for (own, setting, seed), methods in groups.items():
            if own != which or "quasi-newton" not in methods:
                continue
            ours = methods["quasi-newton"]
            rivals = {k: v for k, v in methods.items() if k not in (*MATRICES, "quasi-newton")}
            best = [
                min((v.questions[i] for v in rivals.values()), default=math.inf) for i in (0, 1)
            ]
            ratio = [_ratio(ours.questions[i], best[i]) for i in (0, 1)]
            for i in (0, 1):
                ratios[i].append(ratio[i])
            if "L-BFGS(100)" in methods:
                floats.append(_ratio(ours.up[1], methods["L-BFGS(100)"].up[1]))
            others = ", ".join(
                f"{k} {_pair(v.questions)} ({v.client:.2f} + {v.server:.2f} s)"
                for k, v in methods.items()
                if k != "quasi-newton"
            )
            row(
                f"{setting} #{seed}",
                f"{_pair(ours.questions)} ({ours.client:.2f} + {ours.server:.2f} s)",
                f"{ours.up[1]:.0f}, down {ours.down[1]:.0f}",
                others,
                f"{ratio[0]:.2f}/{ratio[1]:.2f}",
            )
        print(f"\n{which}, {len(ratios[0])} problems, to 1e-6 and to 1e-10:")
        for i, gap in enumerate(GAPS):
            known = np.array([r for r in ratios[i] if not math.isnan(r)])
            if len(known):
                print(
                    f"- {gap:g}: geometric mean {np.exp(np.log(known).mean()):.2f}, within 1.2 of "
                    f"the best rival {np.mean(known <= 1.2):.0%}, "
                    f"within 1.5 {np.mean(known <= 1.5):.0%}"
                )
        known = np.array([r for r in floats if not math.isnan(r)])
        if len(known):
            print(
                f"- floats up beside L-BFGS(100): geometric mean {np.exp(np.log(known).mean()):.2f}"
            )


def _ratio(ours: float, best: float) -> float:
    """Ours over the best: nan if nobody gets there, ½ if we alone do, 10 if all others do."""
    if math.isinf(ours) and math.isinf(best):
        return math.nan
    if math.isinf(best):
        return 0.5
    return ours / best if math.isfinite(ours) else 10.0


def _pair(questions: tuple[float, ...]) -> str:
    return "/".join("–" if math.isinf(each) else f"{each:.0f}" for each in questions)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--file", default="vectors.jsonl", help="where finished runs are kept")
    parser.add_argument("--sets", nargs="+", default=list(SETS), choices=list(SETS))
    parser.add_argument("--subset", action="store_true", help="one seed, m·d² ≤ 4e6, 20 s a run")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--most", type=int, default=1000, help="questions of a run")
    parser.add_argument("--cap", type=float, default=120.0, help="processor seconds of a run")
    parser.add_argument("--against", help="a checkout whose FedSplitVectors is run too")
    parser.add_argument("--only", nargs="+", help="these methods alone")
    parser.add_argument("--child", nargs=6, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        which, place, seed, name, most, cap = options.child
        setting = SETS[which][int(place)]
        print(json.dumps(measure(which, setting, int(seed), name, int(most), float(cap)).__dict__))
        return
    if options.subset:
        options.seeds, options.cap, options.most = 1, min(options.cap, 20.0), 600
    report(list(runs(options)))


if __name__ == "__main__":
    main()
