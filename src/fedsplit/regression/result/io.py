"""Models as files: ``model.json`` for what people read, ``model.npz`` for arrays. Never pickle."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from fedsplit import files
from fedsplit.arrays import Array
from fedsplit.clients.oracle import Incident
from fedsplit.data.formula.formula import Formula
from fedsplit.errors import InputError
from fedsplit.loop.trace import Row, Trace
from fedsplit.regression.client.design import Calibration, Recession
from fedsplit.regression.client.plan import Plan
from fedsplit.regression.options import Settings
from fedsplit.regression.result import sealing
from fedsplit.regression.result.certificate import FitCertificate
from fedsplit.regression.result.model import Model
from fedsplit.regression.result.noisy import NoiseReport, NoisyModel
from fedsplit.regression.result.parts import (
    Computation,
    Estimates,
    FitStatistics,
    PooledMoments,
)
from fedsplit.regression.result.specification import specification
from fedsplit.regression.server.clustered import ClusteredCovariance
from fedsplit.regression.server.inference import CLIENT_COLUMNS, PenalisedLikelihood

FORMAT = 2
"""Raised when files of an older version can no longer be read."""

TRACE_COLUMNS = tuple(name for name in Row._fields if name != "latency")
"""Fields of an exchange that are one value; the latency is one per client."""


def to_dict(model: Model) -> dict[str, Any]:
    """All numbers of a model's summary, as JSON can hold them."""
    interval: pd.DataFrame | dict[str, None] = {"lower": None, "upper": None}
    if model.bse is not None:
        interval = model.conf_int()
    clients = [
        {"client": str(name), **{key: _json(value) for key, value in row.items()}}
        for name, row in zip(model.clients.index, model.clients.to_dict("records"), strict=True)
    ]
    return {
        "formula": model.formula,
        "agreed": model.plan.agreed,
        "family": model.family.name,
        "modelled": model.modelled,
        **specification(model),
        "coef": _by_name(model.params),
        "se": _by_name(model.bse),
        "se_reason": model.se_reason,
        "statistic": model.statistic,
        "z": _by_name(model.tvalues),
        "p": _by_name(model.pvalues),
        "lower": _by_name(interval["lower"]),
        "upper": _by_name(interval["upper"]),
        "robust_se": _by_name(model.robust_bse),
        "robust_df": _by_name(model.robust_df),
        "n": model.nobs,
        "clients": clients,
        "log_likelihood": _json(model.llf),
        "deviance": _json(model.deviance),
        "df_residual": model.df_resid,
        "pearson": _json(model.fit.pearson),
        "overdispersion": _json(model.overdispersion),
        "null_deviance": _json(model.null_deviance),
        "df_null": model.df_null,
        "r_squared": _json(model.r_squared),
        "f_test": _f_test(model),
        "aic": _json(model.aic),
        "bic": _json(model.bic),
        "penalised": _penalised(model),
        "dispersion": _json(model.dispersion),
        "exchanges": model.exchanges,
        "rounds": model.rounds,
        "floats": model.run.floats,
        "converged": model.converged,
        "certificate": dataclasses.asdict(model.certificate),
        "aliased": list(model.aliased),
        "not_estimable": model.not_estimable,
        "removed": model.removed,
        "incidents": [each._asdict() for each in model.run.incidents],
        "logs": dict(model.run.logs),
        "summed": list(model.run.summed),
        "privacy": None,
        "warnings": list(model.warnings),
    }


def _penalised(model: Model) -> dict[str, Any] | None:
    """Of Firth's regression; ``information_se`` are standard errors without augmentation."""
    penalised = model.fit.penalised
    if penalised is None:
        return None
    errors = model.estimates.series(model.estimates.errors, "se")
    return {
        "log_likelihood": _json(penalised.value),
        "null_log_likelihood": _json(penalised.null),
        "likelihood_ratio": _json(penalised.ratio),
        "df": penalised.df,
        "p": _json(penalised.p),
        "information_se": _by_name(errors),
    }


def _f_test(model: Model) -> dict[str, Any] | None:
    if model.f_test is None:
        return None
    keys = ("value", "df_model", "df_residual", "p")
    return {key: _json(value) for key, value in zip(keys, model.f_test, strict=True)}


def _by_name(values: pd.Series | None) -> dict[str, Any] | None:
    if values is None:
        return None
    return {str(name): _json(float(value)) for name, value in values.items()}


def _json(value: Any) -> Any:
    """A value as JSON can hold it: None in place of a number that is not finite."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def _number(value: float | None) -> float:
    """The inverse of ``_json`` for a number that every model has."""
    return math.nan if value is None else value


def save(model: Model, folder: Path) -> None:
    """Write both files, each with a digest of the other: both or neither."""
    latency = model.trace.latency
    estimates, fit = model.estimates, model.fit
    arrays: dict[str, Any] = {
        "coef": estimates.values,
        "errors": estimates.errors,
        "covariance": estimates.covariance,
        "robust": None if estimates.robust is None else estimates.robust.matrix,
        "robust_df": None if estimates.robust is None else estimates.robust.df,
        "limit": estimates.limit,
        "calibration": fit.calibration,
        "mean": None if fit.moments is None else fit.moments.mean,
        "scatter": None if fit.moments is None else fit.moments.scatter,
        "latency": list(latency.values()),
    }
    for name in TRACE_COLUMNS:
        arrays[f"trace_{name}"] = [getattr(row, name) for row in model.trace.rows]
    record = {
        "format": FORMAT,
        "latency": list(latency),
        "version": model.run.version,
        "plan": dataclasses.asdict(model.plan),
        "settings": dataclasses.asdict(model.settings),
        "names": list(estimates.names),
        "recessions": [each._asdict() for each in estimates.recessions],
        "lost_directions": estimates.lost_directions,
        "moments": _moments_record(fit.moments),
        "fingerprint": fit.fingerprint,
        "proofs": [list(proof) for proof in model.run.proofs],
        "start": _json(model.trace.start),
        "first_round": model.run.first_round,
        **model.to_dict(),
        "run_warnings": list(model.run.warnings),
    }
    sealing.check_folder(folder)
    folder.mkdir(parents=True, exist_ok=True)
    sealing.write(folder, record, {key: each for key, each in arrays.items() if each is not None})


def _moments_record(moments: PooledMoments | None) -> dict[str, Any] | None:
    """The part of the moments that is no array."""
    if moments is None:
        return None
    return {"names": list(moments.names), "weight": moments.weight, "target": moments.target}


def write_trace(model: Model, path: Path) -> None:
    """Write all exchanges as CSV, with a column for the seconds of each client.

    A line has the number of the round, which is 0 before the first and the last one after it.
    """
    rows = pd.DataFrame(model.trace.rows).drop(columns="latency")
    numbers = np.arange(1, len(rows) + 1) - model.run.first_round
    rows.index = pd.Index(np.clip(numbers, 0, model.rounds), name="round")
    for name, seconds in model.trace.latency.items():
        rows[f"seconds of {name}"] = seconds
    files.write(path, rows.to_csv())


def load(path: str | Path) -> Model:
    """A model that ``Model.save`` wrote. Nothing in the files is executed."""
    folder = Path(path)
    record, arrays = _read(folder)
    try:
        model = Model(
            plan=Plan(**record["plan"]),
            settings=Settings(**record["settings"]),
            estimates=_estimates(record, arrays),
            fit=_fit(record, arrays),
            run=_run(record, arrays),
        )
        if record["privacy"] is not None:
            noise = NoiseReport(*(record["privacy"][name] for name in NoiseReport._fields))
            model = NoisyModel(**vars(model), noise=noise)
        _check(model)
        return model
    except (KeyError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
        raise InputError(
            f"{folder}: not a saved model, or a damaged one ({type(error).__name__}: {error})"
        ) from None


def _estimates(record: Mapping[str, Any], arrays: Mapping[str, Array]) -> Estimates:
    robust = None
    if "robust" in arrays:
        robust = ClusteredCovariance(arrays["robust"], arrays["robust_df"])
    return Estimates(
        names=record["names"],
        values=arrays["coef"],
        covariance=arrays.get("covariance"),
        robust=robust,
        errors=arrays["errors"],
        aliased=record["aliased"],
        not_estimable=record["not_estimable"],
        recessions=[_recession(each) for each in record["recessions"]],
        lost_directions=record["lost_directions"],
        limit=arrays.get("limit"),
    )


def _fit(record: Mapping[str, Any], arrays: Mapping[str, Array]) -> FitStatistics:
    calibration = penalised = moments = None
    if "calibration" in arrays:
        calibration = Calibration(*arrays["calibration"])
    if (told := record["penalised"]) is not None:
        penalised = PenalisedLikelihood(
            told["log_likelihood"], told["null_log_likelihood"], told["df"]
        )
    if record["moments"] is not None:
        moments = PooledMoments(**record["moments"], mean=arrays["mean"], scatter=arrays["scatter"])
    return FitStatistics(
        clients=pd.DataFrame(record["clients"]).set_index("client")[list(CLIENT_COLUMNS)],
        dispersion=record["dispersion"],
        deviance=_number(record["deviance"]),
        null_deviance=record["null_deviance"],
        llf=record["log_likelihood"],
        pearson=record["pearson"],
        calibration=calibration,
        penalised=penalised,
        moments=moments,
        fingerprint=record["fingerprint"],
        missing_values=record["missing_values"],
    )


def _run(record: Mapping[str, Any], arrays: Mapping[str, Array]) -> Computation:
    return Computation(
        certificate=FitCertificate(**record["certificate"]),
        converged=record["converged"],
        trace=_trace(record, arrays),
        first_round=record["first_round"],
        rounds=record["rounds"],
        proofs=[(round_, gap) for round_, gap in record["proofs"]],
        warnings=record["run_warnings"],
        version=record["version"],
        removed=record["removed"],
        incidents=[Incident(**each) for each in record["incidents"]],
        logs=record["logs"],
        summed=record["summed"],
    )


def _read(folder: Path) -> tuple[dict[str, Any], dict[str, Array]]:
    """The contents of both files, in a format that this version reads."""
    record, arrays = sealing.read(folder)
    found = record.get("format")
    if found != FORMAT:
        raise InputError(
            f"{folder}: saved in format {found}, this version reads format {FORMAT}: "
            "fit the model again"
        )
    return record, arrays


def _recession(record: Mapping[str, Any]) -> Recession:
    return Recession(
        centre=tuple(record["centre"]),
        scale=tuple(record["scale"]),
        whiten=tuple(map(tuple, record["whiten"])),
        direction=tuple(record["direction"]),
    )


def _trace(record: Mapping[str, Any], arrays: Mapping[str, Array]) -> Trace:
    columns = [arrays[f"trace_{name}"].tolist() for name in TRACE_COLUMNS]
    named = [dict(zip(TRACE_COLUMNS, each, strict=True)) for each in zip(*columns, strict=True)]
    rows = [Row(**each) for each in named]
    clients = record["latency"]
    if clients:
        for i, values in enumerate(arrays["latency"].T.tolist()):
            by_client = zip(clients, values, strict=True)
            seconds = {name: value for name, value in by_client if not math.isnan(value)}
            rows[i] = rows[i]._replace(latency=seconds)
    return Trace(_number(record["start"]), rows)


def _check(model: Model) -> None:
    """Raise ValueError for parts that do not fit together, as those of a damaged file."""
    estimates = model.estimates
    d = len(estimates.names)
    vectors = [estimates.values, estimates.errors]
    matrices = [] if estimates.covariance is None else [estimates.covariance]
    if estimates.robust is not None:
        matrices.append(estimates.robust.matrix)
        vectors.append(estimates.robust.df)
    if any(each.shape != (d,) for each in vectors) or any(
        each.shape != (d, d) for each in matrices
    ):
        raise ValueError(f"its arrays are not of {d} coefficients")
    if any(each.dtype.kind != "f" for each in (*vectors, *matrices)):
        raise ValueError("its arrays are not numbers")
    Formula(model.formula)
    model.summary()
