"""Gaussian noise on FedSplit's messages, as for privacy, beside the bounds."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

import fedsplit as fs
from fedsplit.paper import Claim, Experiment, Measurements, SolvedProblem, Watch
from open.figures import lines
from open.noise import NoisyClients, noise_bound, noise_floor

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Table = Mapping[str, NDArray[Any]]


class _Path(NamedTuple):
    """One run: ‖z - z*‖²/m and ‖x - x*‖² after each round, (T,), and the errors of proxes, (T,)."""

    z: NDArray[Any]
    x: NDArray[Any]
    error: NDArray[Any]


class _Noisy:
    """A problem whose clients add noise, at Theorem 1's step.

    Attributes
    ----------
    kappa : float
        κ = L*/ℓ*.
    distance : float
        √(‖z - z*‖²/m) at the start.
    """

    def __init__(self, problem: fs.Problem, local: bool = False) -> None:
        self.solved = SolvedProblem(problem)
        # a cost that is nowhere strongly convex has an ℓ at x* alone
        ell = self.solved.constants(self.solved.x if local else None)[0]
        L = self.solved.constants()[1]
        self.kappa = L / ell
        self.s = fs.theory.fedsplit_step(ell, L)
        self.target = fs.theory.fedsplit_fixed_point(self.solved.clients, self.solved.x, self.s)
        self.distance = float(np.linalg.norm(self.target)) / math.sqrt(len(self.target))

    def path(
        self,
        noise: float,
        rounds: int,
        seed: int,
        prox: fs.local.ProxSolver | None = None,
        settled: bool = False,
    ) -> _Path:
        """Run FedSplit with noise of this size on every answer, from x = 0 or from x*."""
        distances: list[tuple[float, float]] = []

        def look(row: Any, state: Any) -> bool:
            away = state.z - self.target
            squares = np.square(away).sum() / len(away)
            distances.append((float(squares), float(np.square(state.x - self.solved.x).sum())))
            return False

        method = fs.FedSplit(self.s, prox or fs.ExactProx())
        clients = NoisyClients(self.solved.clients, noise, seed)
        state = method.state_type(self.solved.x, self.target, self.s) if settled else None
        result = fs.solve(clients, method, rounds=rounds, tol=0, state=state, callbacks=[look])
        z, x = np.array(distances).T
        return _Path(z, x, result.trace.error)

    def settled(self, noise: float, rounds: int, seeds: int) -> tuple[float, float]:
        """Return E‖z - z*‖²/m and E‖x - x*‖² after as many rounds as the start is felt."""
        first = math.ceil(2.0 * math.sqrt(self.kappa))  # ρ^2·first < e^-8
        runs = [self.path(noise, first + rounds, seed, settled=True) for seed in range(seeds)]
        z, x = (float(np.mean([run[i][first:] for run in runs])) for i in range(2))
        return z, x


def _spiked(settings: Mapping[str, Any], kappa: float) -> _Noisy:
    m, d, n = settings["spiked"]
    return _Noisy(fs.ensembles.spiked(m, d, n, kappa, seed=settings["seed"]))


def _others(settings: Mapping[str, Any]) -> dict[str, _Noisy]:
    """Problems on which the bound is no equality."""
    m, d, n = settings["spiked"]
    seed = settings["seed"]
    isotropic = fs.ensembles.isotropic(m, d, n, seed=seed)
    graded = fs.ensembles.log_uniform(m, d, n, 100.0, seed=seed)
    m, d, n = settings["logistic"]
    logistic = fs.ensembles.logistic(m, d, n, 1 / d, seed)
    return {
        "isotropic": _Noisy(isotropic),
        "log-uniform": _Noisy(graded),
        "logistic": _Noisy(logistic, local=True),
    }


def compute(settings: Mapping[str, Any], watch: Watch) -> Measurements:
    """Measure floors, inexact proxes, and a budget that is divided among more or fewer rounds."""
    noise, rounds, seeds = settings["noise"], settings["rounds"], settings["seeds"]
    rows = []
    for i, kappa in enumerate(settings["kappas"]):
        noisy = _spiked(settings, kappa)
        z, x = noisy.settled(noise, rounds, seeds)
        floor = noise_floor(kappa, noise)
        rows.append({"kappa": kappa, "z": z, "x": x, "floor": floor, "m": len(noisy.target)})
        watch(0.5 * (i + 1) / len(settings["kappas"]), z)
    tables: dict[str, Table] = {"by-kappa": _columns(rows)}
    others = {}
    for name, noisy in _others(settings).items():
        z, x = noisy.settled(noise, rounds, seeds)
        others[name] = [noisy.kappa, z, x, noise_floor(noisy.kappa, noise)]
    watch(0.7, z)
    noisy = _spiked(settings, settings["inexact_kappa"])
    for steps in settings["local_steps"]:
        tables[f"steps-{steps}"] = _inexact(
            noisy, noise, settings, fs.GradientProx(steps, "iterate")
        )
    tables["exact"] = _inexact(noisy, noise, settings, fs.ExactProx())
    watch(0.9, z)
    noisy = _spiked(settings, settings["kappa"])
    tables["by-rounds"] = _columns(
        [_budget(noisy, noise, T, settings["runs"]) for T in settings["many_rounds"]]
    )
    watch(1.0, z)
    return Measurements(settings, tables, {"others": others})


def _columns(rows: Sequence[Mapping[str, float]]) -> Table:
    return {key: np.array([float(row[key]) for row in rows]) for key in rows[0]}


def _inexact(
    noisy: _Noisy, noise: float, settings: Mapping[str, Any], prox: fs.local.ProxSolver
) -> Table:
    """The mean of some runs with a local solver, beside the bound by its proved errors."""
    paths = [noisy.path(noise, settings["shown"], seed, prox) for seed in range(settings["runs"])]
    errors = np.max([path.error for path in paths], axis=0)
    bound = noise_bound(noisy.kappa, noisy.distance, noise, errors)
    measured = np.concatenate([[noisy.distance**2], np.mean([path.z for path in paths], axis=0)])
    return {"round": np.arange(len(bound), dtype=float), "z": measured, "bound": bound**2}


def _budget(noisy: _Noisy, noise: float, rounds: int, runs: int) -> dict[str, float]:
    """The last E‖x - x*‖² of T rounds among which a privacy budget is divided: b² grows like T."""
    b = noise * math.sqrt(rounds)
    last = [float(noisy.path(b, rounds, seed).x[-1]) for seed in range(runs)]
    bound = noise_bound(noisy.kappa, noisy.distance, b, np.zeros(rounds))
    return {"rounds": rounds, "x": float(np.mean(last)), "bound": float(bound[-1] ** 2)}


def draw(measured: Measurements) -> Mapping[str, Figure]:
    """Draw floors against κ, runs with local solvers, and a budget against the rounds."""
    table = measured.tables["by-kappa"]
    floors = {
        "z": (table["kappa"], table["z"]),
        "closed form, z": (table["kappa"], table["floor"]),
        "x": (table["kappa"], table["x"]),
        "closed form, x": (table["kappa"], table["floor"] / table["m"]),
    }
    runs: dict[str, tuple[NDArray[Any], NDArray[Any]]] = {}
    for steps in (*measured.settings["local_steps"], None):
        name = "exact" if steps is None else f"steps-{steps}"
        curve = measured.tables[name]
        runs[name] = curve["round"], curve["z"]
        runs[f"bound, {name}"] = curve["round"], curve["bound"]
    spent = measured.tables["by-rounds"]
    budget = {
        "x": (spent["rounds"], spent["x"]),
        "bound, x": (spent["rounds"], spent["bound"]),
    }
    ylabel = "mean squared distance"
    return {
        "open-privacy-floor": lines(
            floors, "Noise on messages: where FedSplit settles", "κ", ylabel, logarithmic=True
        ),
        "open-privacy-inexact": lines(
            runs, "Noise and inexact proxes, (1/m)E‖z - z*‖²", "rounds", ylabel
        ),
        "open-privacy-budget": lines(
            budget, "One budget over T rounds", "rounds T", ylabel, logarithmic=True
        ),
    }


def claims(measured: Measurements) -> list[Claim]:
    """Check the floors, the bounds, and that a budget has a best number of rounds."""
    table = measured.tables["by-kappa"]
    z = table["z"] / table["floor"]
    x = table["m"] * table["x"] / table["floor"]
    others = measured.facts["others"].values()
    elsewhere = [max(z, x) / floor for _, z, x, floor in others]
    names = [f"steps-{steps}" for steps in measured.settings["local_steps"]]
    coupled = [
        float(np.max(measured.tables[name]["z"] / measured.tables[name]["bound"]))
        for name in (*names, "exact")
    ]
    m, d, _ = measured.settings["spiked"]
    # four standard errors of a mean of squares, where the bound is an equality
    allowed = 1.0 + 4.0 * math.sqrt(2.0 / (measured.settings["runs"] * m * d))
    spent = measured.tables["by-rounds"]
    best = int(np.argmin(spent["x"]))
    return [
        Claim(
            "open-privacy-z",
            "on the spiked ensemble (1/m)E‖z - z*‖² settles within 5 % of b²(√κ+1)²/√κ: ratios",
            1.0,
            z.tolist(),
            bool((np.abs(z - 1.0) <= 0.05).all()),
        ),
        Claim(
            "open-privacy-x",
            "there E‖x - x*‖² settles within 20 % of that divided by m: ratios",
            1.0,
            x.tolist(),
            bool((np.abs(x - 1.0) <= 0.2).all()),
        ),
        Claim(
            "open-privacy-elsewhere",
            "the bound holds on isotropic, log-uniform and logistic data: ratios to it",
            "at most 1",
            elsewhere,
            max(elsewhere) <= 1.0,
        ),
        Claim(
            "open-privacy-inexact",
            "with an inexact prox beside the noise, the bound D⁺² = (ρD + 2c)² + 4b² holds in "
            "every round, with the proved errors c, but for four standard errors: largest ratios, "
            "by local steps, and exact",
            "at most 1",
            coupled,
            max(coupled) <= allowed,
        ),
        Claim(
            "open-privacy-budget",
            "where a budget is divided among T rounds, so that b² grows like T, neither the fewest "
            "nor the most rounds are best: T, and E‖x - x*‖² there, at the fewest, at the most",
            "between",
            [float(spent["rounds"][best]), *spent["x"][[best, 0, -1]].tolist()],
            0 < best < len(spent["x"]) - 1,
        ),
    ]


OPEN_PRIVACY = Experiment(
    "open-privacy",
    "Noise on FedSplit's messages",
    "Every client adds noise of E‖n_j‖² = b² to its prox; Theorem 1's step. The logistic cost is "
    "strongly convex nowhere without bounds on x, so its ℓ is that at x*.",
    {
        "spiked": [10, 20, 40],
        "logistic": [10, 10, 200],
        "seed": 0,
        "noise": 0.01,
        "kappas": [10.0, 100.0, 1000.0],
        "rounds": 600,
        "seeds": 3,
        "kappa": 100.0,
        "inexact_kappa": 10.0,
        "local_steps": [5, 10],
        "shown": 60,
        "runs": 10,
        "many_rounds": [5, 10, 20, 40, 80, 160],
    },
    compute,
    draw,
    claims,
    cost=60,
)
