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
from fedsplit.regression.result import private, sealing
from fedsplit.regression.result.model import FitCertificate, Model
from fedsplit.regression.server.inference import CLIENT_COLUMNS, PenalisedLikelihood

FORMAT = 1
"""Raised when files of an older version can no longer be read."""

TRACE_COLUMNS = tuple(name for name in Row._fields if name != "latency")
"""Fields of a round that are one value; the latency is one per client."""


def to_dict(model: Model) -> dict[str, Any]:
    """All numbers of a model's summary, as JSON can hold them."""
    lower = upper = None
    if model.se is not None:
        interval = model.conf_int()
        lower, upper = interval["lower"], interval["upper"]
    clients = [
        {"client": str(name), **{key: _json(value) for key, value in row.items()}}
        for name, row in zip(model.clients.index, model.clients.to_dict("records"), strict=True)
    ]
    return {
        "formula": model.formula,
        "agreed": model.plan.agreed,
        "family": model.family.name,
        "modelled": model.modelled,
        "coef": _by_name(model.coef_),
        "se": _by_name(model.se),
        "se_reason": model.se_reason,
        "statistic": model.statistic,
        "z": _by_name(model.zvalues),
        "p": _by_name(model.pvalues),
        "lower": _by_name(lower),
        "upper": _by_name(upper),
        "robust_se": _by_name(model.robust_se),
        "n": model.n,
        "clients": clients,
        "log_likelihood": _json(model.log_likelihood),
        "deviance": _json(model.deviance),
        "df_residual": model.df_residual,
        "null_deviance": _json(model.null_deviance),
        "df_null": model.df_null,
        "r_squared": _json(model.r_squared),
        "f_test": _f_test(model),
        "aic": _json(model.aic),
        "penalised": _penalised(model),
        "dispersion": _json(model.dispersion),
        "questions": model.questions,
        "rounds": model.rounds,
        "floats": model.floats,
        "converged": model.converged,
        "certificate": dataclasses.asdict(model.certificate),
        "aliased": list(model.aliased),
        "not_estimable": dict(model.not_estimable),
        "removed": dict(model.removed),
        "incidents": [each._asdict() for each in model.incidents],
        "logs": dict(model.logs),
        "summed": list(model.summed),
        "privacy": private.to_dict(model),
        "warnings": list(model.warnings),
    }


def _penalised(model: Model) -> dict[str, Any] | None:
    """Of Firth's regression; ``information_se`` are standard errors without augmentation."""
    if model.penalised is None:
        return None
    errors = pd.Series(model.errors, index=list(model.names))
    return {
        "log_likelihood": _json(model.penalised.value),
        "null_log_likelihood": _json(model.penalised.null),
        "likelihood_ratio": _json(model.penalised.ratio),
        "df": model.penalised.df,
        "p": _json(model.penalised.p),
        "information_se": _by_name(errors),
    }


def _f_test(model: Model) -> dict[str, Any] | None:
    if model.f_test is None:
        return None
    return {name: _json(value) for name, value in model.f_test._asdict().items()}


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
    arrays: dict[str, Any] = {
        "coef": model.coef,
        "errors": model.errors,
        "covariance_": model.covariance_,
        "robust_": model.robust_,
        "calibration": model.calibration,
        "limit": model.limit,
        "latency": list(latency.values()),
    }
    for name in TRACE_COLUMNS:
        arrays[f"trace_{name}"] = [getattr(row, name) for row in model.trace.rows]
        arrays[f"beside_{name}"] = [getattr(row, name) for row in model.beside]
    record = {
        "format": FORMAT,
        "latency": list(latency),
        "version": model.version,
        "plan": dataclasses.asdict(model.plan),
        "settings": dataclasses.asdict(model.settings),
        "names": list(model.names),
        "lost_directions": model.lost_directions,
        "recessions": [each._asdict() for each in model.recessions],
        "proofs": [list(proof) for proof in model.proofs],
        "start": _json(model.trace.start),
        **to_dict(model),
    }
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except FileExistsError:
        raise InputError(f"{folder}: is a file, not a folder") from None
    kept = {name: value for name, value in arrays.items() if value is not None}
    sealing.write(folder, record, kept)


def write_trace(model: Model, path: Path) -> None:
    """Write all exchanges as CSV, with a column for the seconds of each client.

    A line has the number of the round, which is 0 before the first and the last one after it.
    """
    trace = Trace(model.trace.start, model.exchanges)
    rows = pd.DataFrame(trace.rows).drop(columns="latency")
    numbers = np.clip(np.arange(1, len(rows) + 1) - model.before, 0, model.rounds)
    rows.index = pd.Index(numbers, name="round")
    for name, seconds in trace.latency.items():
        rows[f"seconds of {name}"] = seconds
    files.write(path, rows.to_csv())


def load(path: str | Path) -> Model:
    """A model that ``Model.save`` wrote. Nothing in the files is executed."""
    folder = Path(path)
    record, arrays = _read(folder)
    try:
        calibration = None
        if "calibration" in arrays:
            calibration = Calibration(*arrays["calibration"])
        model = Model(
            plan=Plan.from_record(record["plan"]),
            settings=Settings(**record["settings"]),
            names=record["names"],
            coef=arrays["coef"],
            covariance_=arrays.get("covariance_"),
            robust_=arrays.get("robust_"),
            dispersion=_number(record["dispersion"]),
            log_likelihood=record["log_likelihood"],
            deviance=_number(record["deviance"]),
            null_deviance=record.get("null_deviance"),
            certificate=FitCertificate(**record["certificate"]),
            clients=pd.DataFrame(record["clients"]).set_index("client")[list(CLIENT_COLUMNS)],
            calibration=calibration,
            trace=_trace(record, arrays),
            beside=_rows(arrays, "beside"),
            proofs=[(round_, gap) for round_, gap in record["proofs"]],
            errors=arrays["errors"],
            floats=record["floats"],
            converged=record["converged"],
            warnings=record["warnings"],
            version=record["version"],
            removed=dict(record["removed"]),
            incidents=[Incident(**each) for each in record["incidents"]],
            logs=record.get("logs", {}),
            summed=record.get("summed", ()),
            noised=private.of_record(record.get("privacy")),
            aliased=record.get("aliased", ()),
            not_estimable=record.get("not_estimable", {}),
            recessions=[_recession(each) for each in record.get("recessions", ())],
            limit=arrays.get("limit"),
            lost_directions=record.get("lost_directions", 0),
            penalised=_likelihood(record.get("penalised")),
        )
        _check(model)
        _check_copies(model, record)
        return model
    except (KeyError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
        raise InputError(
            f"{folder}: not a saved model, or a damaged one ({type(error).__name__}: {error})"
        ) from None


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


def _likelihood(record: Mapping[str, Any] | None) -> PenalisedLikelihood | None:
    if record is None:
        return None
    return PenalisedLikelihood(
        record["log_likelihood"], record["null_log_likelihood"], record["df"]
    )


def _recession(record: Mapping[str, Any]) -> Recession:
    return Recession(
        centre=tuple(record["centre"]),
        scale=tuple(record["scale"]),
        whiten=tuple(map(tuple, record["whiten"])),
        direction=tuple(record["direction"]),
    )


def _rows(arrays: Mapping[str, Array], prefix: str) -> list[Row]:
    # An older version may have saved fewer columns: the rest have the defaults of Row.
    names = [name for name in TRACE_COLUMNS if f"{prefix}_{name}" in arrays]
    columns = [arrays[f"{prefix}_{name}"].tolist() for name in names]
    return [Row(**dict(zip(names, values, strict=True))) for values in zip(*columns, strict=True)]


def _trace(record: Mapping[str, Any], arrays: Mapping[str, Array]) -> Trace:
    rows = _rows(arrays, "trace")
    clients = record["latency"]
    if clients:
        for i, values in enumerate(arrays["latency"].T.tolist()):
            by_client = zip(clients, values, strict=True)
            seconds = {name: value for name, value in by_client if not math.isnan(value)}
            rows[i] = rows[i]._replace(latency=seconds)
    start = record["start"]
    if start is None:
        start = math.nan
    return Trace(start, rows)


def _check(model: Model) -> None:
    """Raise ValueError for parts that do not fit together, as those of a damaged file."""
    d = len(model.names)
    vectors = [model.coef, model.errors]
    matrices = [each for each in (model.covariance_, model.robust_) if each is not None]
    if any(each.shape != (d,) for each in vectors) or any(
        each.shape != (d, d) for each in matrices
    ):
        raise ValueError(f"its arrays are not of {d} coefficients")
    if any(each.dtype.kind != "f" for each in (*vectors, *matrices)):
        raise ValueError("its arrays are not numbers")
    Formula(model.formula)
    model.summary()


def _check_copies(model: Model, record: Mapping[str, Any]) -> None:
    """Raise ValueError unless numbers that are in both files are the same in both.

    Older versions wrote no digests: this is what shows that their two files are of one model.
    """
    known = to_dict(model)
    for name in ("coef", "se", "robust_se", "rounds"):
        if record[name] != known[name]:
            raise ValueError(f"its {name} differs between the two files")
