"""How much clients compute locally: a running count of gradients, Hessians and factorisations."""

from __future__ import annotations

import threading
from typing import NamedTuple


class Work(NamedTuple):
    """What one client has computed; clients stacked in one block compute the same, together.

    Not counted: function values, margins, the diagonal of a Hessian, the bounds ℓ_j and L_j that
    are computed once, and what CVXPY does inside.

    Attributes
    ----------
    gradients : float
        Evaluations of ∇f_j, those of a Hessian by finite differences among them. A minibatch
        counts as its share of the rows, so this is the number of passes over the data.
    hessians : float
        Evaluations of ∇²f_j, or of a matrix B with BᵀB = ∇²f_j.
    factorisations : int
        Factorisations of a matrix made from a Hessian: a linear system, an inverse, or eigenvalues.
        A factor that is kept, as for quadratic costs, counts only when it is made.
    """

    gradients: float
    hessians: float
    factorisations: int


class Counter(threading.local):
    """The work done so far by the calling thread, in the manner of ``time.thread_time``.

    A question to one block is answered by one thread, so its work is the difference of two reads::

        before = counter.read()
        rows[at] = solver.solve(costs, v, s, start)
        work[at] = np.subtract(counter.read(), before)

    There is one counter per thread and not one per block, so that counting needs no lock and
    clients that are asked from several threads at once are counted correctly.
    """

    gradients: float = 0
    hessians: float = 0
    factorisations = 0

    def read(self) -> Work:
        return Work(self.gradients, self.hessians, self.factorisations)


counter = Counter()
