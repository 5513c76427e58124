"""The model of a fit with noise."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd

from fedsplit.loop.trace import Trace
from fedsplit.regression.client.privacy.accounting import noise_multiplier
from fedsplit.regression.options import Settings
from fedsplit.regression.result.model import FitCertificate, Model
from fedsplit.regression.result.private import NO_CERTIFICATE, Noised
from fedsplit.regression.server.inference import CLIENT_COLUMNS
from fedsplit.regression.server.private import PrivateEstimate, PrivateSearch
from fedsplit.remote.history import History
from fedsplit.remote.summed import ALL
from fedsplit.version import __version__


def private_model(
    settings: Settings, search: PrivateSearch, found: PrivateEstimate, history: History
) -> Model:
    """What a fit with noise found, without anything about single clients, and without a proof."""
    privacy = search.privacy
    noise = np.sqrt(np.diag(found.noise_covariance))
    errors = noise
    if found.covariance is not None:
        errors = np.sqrt(np.diag(found.covariance))
    clients = pd.DataFrame(
        [(max(0, round(found.rows)), 0, math.nan, math.nan, math.nan, "")],
        columns=list(CLIENT_COLUMNS),
        index=pd.Index([ALL], name="client"),
    )
    rows = list(history.exchanges)
    noised = Noised(
        clients=list(found.clients),
        rows=found.rows,
        rows_error=found.rows_error,
        noise_se=noise.tolist(),
        multiplier=noise_multiplier(privacy.epsilon, privacy.delta),
        score=search.bounds.score,
        weight=search.bounds.weight,
    )
    return Model(
        plan=found.plan,
        settings=settings,
        names=found.plan.names,
        coef=found.coef,
        covariance_=found.covariance,
        robust_=None,
        errors=errors,
        dispersion=found.dispersion,
        deviance=math.nan,
        log_likelihood=None,
        certificate=FitCertificate(None, None, NO_CERTIFICATE),
        clients=clients,
        calibration=None,
        trace=Trace(math.nan, rows),
        proofs=[],
        floats=sum(row.floats_up + row.floats_down for row in rows),
        converged=False,
        warnings=found.warnings,
        version=__version__,
        incidents=list(history.incidents),
        logs=dict(history.logs),
        summed=search.summed,
        noised=noised,
    )
