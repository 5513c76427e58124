"""Federated convex optimisation: the pooled answer from clients that never pool their data."""

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from fedsplit import ensembles, theory
from fedsplit.clients.delayed import Latency
from fedsplit.clients.oracle import Clients, Incident
from fedsplit.clients.question import Answer
from fedsplit.device.placing import StackedRows
from fedsplit.errors import InputError, NoMinimiser, TooFewClients
from fedsplit.local.gradient import GradientProx
from fedsplit.local.newton import ExactProx, NewtonProx
from fedsplit.local.stochastic import StochasticProx
from fedsplit.local.subsampled_newton import SubsampledNewtonProx
from fedsplit.losses.custom import CustomLoss
from fedsplit.losses.gamma import Gamma
from fedsplit.losses.huber import Huber
from fedsplit.losses.least_squares import LeastSquares
from fedsplit.losses.logistic import Logistic
from fedsplit.losses.multinomial import Multinomial
from fedsplit.losses.poisson import Poisson
from fedsplit.losses.scalar import ScalarLoss
from fedsplit.methods.adapt import Adapt
from fedsplit.methods.admm import ADMM
from fedsplit.methods.agd import AGD
from fedsplit.methods.anderson import Anderson
from fedsplit.methods.cg import CG
from fedsplit.methods.dave import DAvePG
from fedsplit.methods.fedavg import FedAvg
from fedsplit.methods.feddyn import FedDyn
from fedsplit.methods.fedgd import FedGD
from fedsplit.methods.fedprox import FedProx
from fedsplit.methods.gd import GD
from fedsplit.methods.giant import GIANT
from fedsplit.methods.information import FedSplitInformation
from fedsplit.methods.lbfgs import LBFGS
from fedsplit.methods.newton import Newton
from fedsplit.methods.regularised import RegularisedFedSplit
from fedsplit.methods.relaxed import RelaxedFedSplit
from fedsplit.methods.scaffnew import Scaffnew
from fedsplit.methods.scaffold import SCAFFOLD
from fedsplit.methods.secants import Secants
from fedsplit.methods.variants import FedSplit
from fedsplit.penalties.box import Box, NonNegative
from fedsplit.penalties.elastic_net import ElasticNet
from fedsplit.penalties.group_l1 import GroupL1
from fedsplit.penalties.l1 import L1
from fedsplit.penalties.l2_ball import L2Ball
from fedsplit.penalties.penalty import Penalty
from fedsplit.penalties.simplex import Simplex
from fedsplit.problem import Problem
from fedsplit.regression.client.privacy.privacy import Privacy
from fedsplit.rounds.certificate import Certificate, certify
from fedsplit.rounds.result import Diverged, Result
from fedsplit.rounds.solve import solve
from fedsplit.rounds.trace import Trace
from fedsplit.version import __version__ as __version__

if TYPE_CHECKING:
    from fedsplit.estimators import (
        FedElasticNet,
        FedGammaRegressor,
        FedHuberRegressor,
        FedLasso,
        FedLinearRegression,
        FedLogisticRegression,
        FedPoissonRegressor,
        FedRidge,
    )
    from fedsplit.local.cvxpy_prox import CvxpyProx
    from fedsplit.losses.cvxpy_loss import CvxpyLoss
    from fedsplit.regression.fit import fit
    from fedsplit.regression.path import RegularisationPath, path
    from fedsplit.regression.result.io import load
    from fedsplit.regression.result.model import FitCertificate, Model
    from fedsplit.remote.checkpoint import Checkpoint
    from fedsplit.remote.members import Patience
    from fedsplit.remote.ray.ray_clients import RayClients

__all__ = [
    "ADMM",
    "AGD",
    "CG",
    "GD",
    "GIANT",
    "L1",
    "LBFGS",
    "SCAFFOLD",
    "Adapt",
    "Anderson",
    "Answer",
    "Box",
    "Certificate",
    "Checkpoint",
    "Clients",
    "CustomLoss",
    "CvxpyLoss",
    "CvxpyProx",
    "DAvePG",
    "Diverged",
    "ElasticNet",
    "ExactProx",
    "FedAvg",
    "FedDyn",
    "FedElasticNet",
    "FedGD",
    "FedGammaRegressor",
    "FedHuberRegressor",
    "FedLasso",
    "FedLinearRegression",
    "FedLogisticRegression",
    "FedPoissonRegressor",
    "FedProx",
    "FedRidge",
    "FedSplit",
    "FedSplitInformation",
    "FitCertificate",
    "Gamma",
    "GradientProx",
    "GroupL1",
    "Huber",
    "Incident",
    "InputError",
    "L2Ball",
    "Latency",
    "LeastSquares",
    "Logistic",
    "Model",
    "Multinomial",
    "Newton",
    "NewtonProx",
    "NoMinimiser",
    "NonNegative",
    "Patience",
    "Penalty",
    "Poisson",
    "Privacy",
    "Problem",
    "RayClients",
    "RegularisationPath",
    "RegularisedFedSplit",
    "RelaxedFedSplit",
    "Result",
    "Scaffnew",
    "ScalarLoss",
    "Secants",
    "Simplex",
    "StackedRows",
    "StochasticProx",
    "SubsampledNewtonProx",
    "TooFewClients",
    "Trace",
    "certify",
    "ensembles",
    "fit",
    "load",
    "path",
    "solve",
    "theory",
]

_ESTIMATORS = (
    "FedElasticNet",
    "FedGammaRegressor",
    "FedHuberRegressor",
    "FedLasso",
    "FedLinearRegression",
    "FedLogisticRegression",
    "FedPoissonRegressor",
    "FedRidge",
)

_LATER = {
    "Checkpoint": "fedsplit.remote.checkpoint",
    "CvxpyLoss": "fedsplit.losses.cvxpy_loss",
    "CvxpyProx": "fedsplit.local.cvxpy_prox",
    "FitCertificate": "fedsplit.regression.result.model",
    "Model": "fedsplit.regression.result.model",
    "Patience": "fedsplit.remote.members",
    "RayClients": "fedsplit.remote.ray.ray_clients",
    "RegularisationPath": "fedsplit.regression.path",
    "fit": "fedsplit.regression.fit",
    "load": "fedsplit.regression.result.io",
    "path": "fedsplit.regression.path",
} | dict.fromkeys(_ESTIMATORS, "fedsplit.estimators")
"""Modules that are imported when their names are first used: CVXPY and Ray are extras, and pandas
and scikit-learn take a second."""


_EXTRAS = {
    "CvxpyLoss": ("CVXPY", "cvx", "cvxpy"),
    "CvxpyProx": ("CVXPY", "cvx", "cvxpy"),
    "RayClients": ("Ray", "ray", "ray"),
}
"""Names that need an extra: what it is called, the extra, and the module that it brings."""

for _name, (_, _, _module) in _EXTRAS.items():
    if find_spec(_module) is None:
        __all__.remove(_name)  # so that `import *` and `help` work without it


def __dir__() -> list[str]:
    """All names, those that are imported later included."""
    return sorted({*globals(), *__all__})


def __getattr__(name: str) -> Any:
    """The names in ``_LATER``."""
    if name not in _LATER:
        raise AttributeError(f"module 'fedsplit' has no attribute {name!r}")
    try:
        return getattr(import_module(_LATER[name]), name)
    except (ModuleNotFoundError, InputError) as error:
        if name not in _EXTRAS:
            raise
        product, extra, _ = _EXTRAS[name]
        raise ImportError(
            f"fedsplit.{name} needs {product}: pip install 'fedsplit[{extra}]'"
        ) from error
