"""FedAvg with minibatches: where it hovers, and how far it spreads, beside the closed forms."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

import fedsplit as fs
from fedsplit.paper import Claim, Experiment, Measurements, SolvedProblem, Watch
from open.figures import lines
from open.moments import Moments, fedavg_moments

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class _Runs:
    """Runs of FedAvg on one problem over several seeds."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        sizes = settings["m"], settings["d"], settings["n"]
        drawn = fs.ensembles.isotropic(*sizes, settings["noise"], settings["seed"]).rows
        # clients of their own parameters, so that more than one local step has a bias
        rng = np.random.default_rng(settings["seed"])
        self.data = [(A, b + A @ rng.standard_normal(A.shape[1])) for A, b in drawn]
        self.solved = SolvedProblem(fs.Problem(fs.LeastSquares(rows=True), self.data))
        information = fs.questions.Information(self.solved.x)
        self.H = self.solved.clients.ask(information).rows.sum(axis=0)
        self.rounds = settings["rounds"]
        self.seeds = settings["seeds"]

    def gap(self, moments: Moments) -> float:
        """Return E F(x) - F* = ½(bias² in the norm of H) + ½ tr(H Cov)."""
        bias = moments.mean - self.solved.x
        return 0.5 * float(bias @ self.H @ bias + np.trace(self.H @ moments.covariance))

    def measured(self, method: fs.FedAvg, x0: NDArray[Any]) -> tuple[float, float]:
        """Return the mean gap of the second half of all runs, and its standard error."""
        ends = [
            self.curve(method, x0, seed)[self.rounds // 2 :].mean() for seed in range(self.seeds)
        ]
        return float(np.mean(ends)), float(np.std(ends, ddof=1) / np.sqrt(self.seeds))

    def curve(self, method: fs.FedAvg, x0: NDArray[Any], seed: int) -> NDArray[Any]:
        """Return the gaps of one run, at the start and after each round."""
        settings: dict[str, Any] = {"rounds": self.rounds, "tol": 0, "x0": x0, "seed": seed}
        result = fs.solve(self.solved.clients, method, **settings)
        gaps: NDArray[Any] = result.trace.objective - self.solved.best
        return gaps

    def row(self, s: float, local_steps: int, batch: int) -> dict[str, float]:
        """Return what was measured with one setting, beside the closed forms."""
        limit = fedavg_moments(self.data, s, local_steps, batch)
        mean, error = self.measured(fs.FedAvg(s, local_steps, batch), limit.mean)
        bias = Moments(limit.mean, np.zeros_like(self.H))
        return {
            "step": s,
            "local_steps": float(local_steps),
            "batch": float(batch),
            "gap": mean,
            "standard_error": error,
            "closed_form": self.gap(limit),
            "closed_form_bias": self.gap(bias),
        }


def compute(settings: Mapping[str, Any], watch: Watch) -> Measurements:
    """Vary e, B and s one at a time, and compare constant with falling steps, and with epochs."""
    runs = _Runs(settings)
    s = float(settings["step"])
    e = int(settings["local_steps"])
    batch = int(settings["batch"])
    varied = {
        "by-local-steps": [(s, each, batch) for each in settings["many_local_steps"]],
        "by-batch": [(s, e, each) for each in settings["batches"]],
        "by-step": [(each, e, batch) for each in settings["steps"]],
    }
    total = sum(len(each) for each in varied.values()) + 2
    tables: dict[str, Mapping[str, NDArray[Any]]] = {}
    done = 0
    for name, choices in varied.items():
        rows = []
        for choice in choices:
            rows.append(runs.row(*choice))
            done += 1
            watch(done / total, rows[-1]["gap"])
        tables[name] = {key: np.array([row[key] for row in rows]) for key in rows[0]}
    zero = np.zeros(settings["d"])
    for each in (1, e):
        for kind, decay in (("constant", 0.0), ("falling", settings["decay"])):
            method = fs.FedAvg(s, each, batch, decay=decay)
            gaps = np.mean([runs.curve(method, zero, seed) for seed in range(runs.seeds)], axis=0)
            tables[f"{kind}-e{each}"] = {"round": np.arange(len(gaps), dtype=float), "gap": gaps}
        done += 1
        watch(done / total, float(gaps[-1]))
    steps = -(-settings["n"] // batch)
    limit = fedavg_moments(runs.data, s, steps, batch)
    epochs = runs.measured(fs.FedAvg(s, batch=batch, epochs=1), limit.mean)
    facts = {"epochs": epochs, "independent": runs.gap(limit), "epoch_steps": steps}
    return Measurements(settings, tables, facts)


def draw(measured: Measurements) -> Mapping[str, Figure]:
    """Draw the gap against e, B and s, and over the rounds."""
    ylabel = "E F(x) - F*"
    drawn = {}
    for name, column, label in (
        ("by-local-steps", "local_steps", "local steps e"),
        ("by-batch", "batch", "batch size B"),
        ("by-step", "step", "step s"),
    ):
        table = measured.tables[name]
        series = {
            "measured": (table[column], table["gap"]),
            "closed form, measured": (table[column], table["closed_form"]),
            "bias": (table[column], table["closed_form_bias"]),
        }
        figure = lines(series, f"FedAvg, {label}", label, ylabel, logarithmic=True)
        drawn[f"open-fedavg-{name}"] = figure
    curves = {
        name: (table["round"], table["gap"])
        for name, table in measured.tables.items()
        if not name.startswith("by-")
    }
    drawn["open-fedavg-rounds"] = lines(
        curves, "FedAvg, constant and falling steps", "rounds", ylabel
    )
    return drawn


def claims(measured: Measurements) -> list[Claim]:
    """Check the closed forms, and where falling steps and epochs lead."""
    ratios: list[float] = []
    agree = True
    for name in ("by-local-steps", "by-batch", "by-step"):
        table = measured.tables[name]
        ratios += (table["gap"] / table["closed_form"]).tolist()
        away = np.abs(table["gap"] - table["closed_form"])
        agree &= bool((away <= 4.0 * table["standard_error"] + 0.02 * table["closed_form"]).all())
    e = measured.settings["local_steps"]
    ends = [
        float(measured.gap(f"{kind}-e{each}")[-20:].mean())
        for each in (1, e)
        for kind in ("constant", "falling")
    ]
    mean, error = measured.facts["epochs"]
    independent = float(measured.facts["independent"])
    return [
        Claim(
            "open-fedavg-closed-form",
            "the mean gap is that of the closed-form mean and covariance, for every e, B and s: "
            "ratios, which hold within four standard errors and 2 %",
            1.0,
            ratios,
            agree,
        ),
        Claim(
            "open-fedavg-falling-steps",
            f"with falling steps the gap goes on falling, for e = 1 and e = {e}: last gaps with "
            "constant and falling steps, of each",
            "smaller",
            ends,
            ends[1] < ends[0] and ends[3] < ends[2],
        ),
        Claim(
            "open-fedavg-epochs",
            "passes without replacement have another mean gap than as many independent batches: "
            "both gaps",
            "unlike",
            [mean, independent],
            abs(mean - independent) > 4.0 * error,
        ),
    ]


OPEN_FEDAVG = Experiment(
    "open-fedavg",
    "FedAvg with minibatches: floor and spread",
    "Least squares, isotropic, with a parameter of its own at every client. Runs at constant steps "
    "start at the closed-form fixed point, so that what is measured is the stationary spread; "
    "those over the rounds start at x = 0.",
    {
        "m": 5,
        "d": 5,
        "n": 60,
        "noise": 0.25,
        "seed": 0,
        "rounds": 100,
        "seeds": 12,
        "step": 0.003,
        "local_steps": 10,
        "batch": 10,
        "many_local_steps": [1, 2, 5, 10, 20],
        "batches": [5, 10, 20, 40, 60],
        "steps": [0.0005, 0.001, 0.002, 0.003],
        "decay": 0.1,
    },
    compute,
    draw,
    claims,
    cost=60,
)
