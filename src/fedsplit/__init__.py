"""Federated convex optimisation: the pooled answer from clients that never pool their data."""

from typing import TYPE_CHECKING, Any

from fedsplit import ensembles, theory
from fedsplit.certificate import Certificate, certify
from fedsplit.clients.protocol import Answer, Clients
from fedsplit.errors import Diverged, InputError, NoMinimiser
from fedsplit.losses.custom import CustomLoss
from fedsplit.losses.huber import Huber
from fedsplit.losses.least_squares import LeastSquares
from fedsplit.losses.logistic import Logistic
from fedsplit.losses.poisson import Poisson
from fedsplit.methods.adapt import Adapt
from fedsplit.methods.admm import ADMM
from fedsplit.methods.agd import AGD
from fedsplit.methods.anderson import Anderson
from fedsplit.methods.cg import CG
from fedsplit.methods.feddyn import FedDyn
from fedsplit.methods.fedgd import FedGD
from fedsplit.methods.fedprox import FedProx
from fedsplit.methods.fedsplit import FedSplit
from fedsplit.methods.gd import GD
from fedsplit.methods.giant import GIANT
from fedsplit.methods.lbfgs import LBFGS
from fedsplit.methods.newton import Newton
from fedsplit.methods.regularised import RegularisedFedSplit
from fedsplit.methods.scaffnew import Scaffnew
from fedsplit.methods.scaffold import SCAFFOLD
from fedsplit.methods.secants import Secants
from fedsplit.penalties import L1, Box, ElasticNet, GroupL1, L2Ball, NonNegative, Penalty, Simplex
from fedsplit.problem import Problem
from fedsplit.prox.exact import ExactProx
from fedsplit.prox.gradient import GradientProx
from fedsplit.prox.newton import NewtonProx
from fedsplit.rounds import solve
from fedsplit.trace import Result, Trace

if TYPE_CHECKING:
    from fedsplit.losses.cvx import CvxpyLoss
    from fedsplit.prox.cvx import CvxpyProx

__version__ = "0.1.0"

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
    "Clients",
    "CustomLoss",
    "CvxpyLoss",
    "CvxpyProx",
    "Diverged",
    "ElasticNet",
    "ExactProx",
    "FedDyn",
    "FedGD",
    "FedProx",
    "FedSplit",
    "GradientProx",
    "GroupL1",
    "Huber",
    "InputError",
    "L2Ball",
    "LeastSquares",
    "Logistic",
    "Newton",
    "NewtonProx",
    "NoMinimiser",
    "NonNegative",
    "Penalty",
    "Poisson",
    "Problem",
    "RegularisedFedSplit",
    "Result",
    "Scaffnew",
    "Secants",
    "Simplex",
    "Trace",
    "certify",
    "ensembles",
    "solve",
    "theory",
]

_EXTRA_CVX = {"CvxpyLoss": "fedsplit.losses.cvx", "CvxpyProx": "fedsplit.prox.cvx"}


def __getattr__(name: str) -> Any:
    """The names of the extra ``cvx``, imported when first used."""
    if name not in _EXTRA_CVX:
        raise AttributeError(f"module 'fedsplit' has no attribute {name!r}")
    from importlib import import_module

    try:
        return getattr(import_module(_EXTRA_CVX[name]), name)
    except ModuleNotFoundError as error:
        raise ImportError(f"fedsplit.{name} needs CVXPY: pip install 'fedsplit[cvx]'") from error
