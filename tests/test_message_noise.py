"""Noise on FedSplit's messages: the bounds in the mean square, checked against runs."""

from typing import Any

import numpy as np
import pytest

import fedsplit as fs
from fedsplit import theory
from fedsplit.clients.noisy import NoisyClients


def test_without_noise_the_bound_is_the_master_theorems() -> None:
    errors = np.array([0.1, 0.2, 0.05])
    found = theory.noise_bound(50.0, 3.0, 0.0, errors)
    assert np.allclose(found, theory.master_bound(50.0, 3.0, errors), rtol=1e-14)


def test_the_floor_of_noise_is_a_fixed_point_of_its_recursion() -> None:
    assert np.isclose(theory.noise_floor(16.0, 0.3), 0.3**2 * 25.0 / 4.0, rtol=1e-14)
    for noise, error in ((0.3, 0.0), (0.0, 0.2), (0.3, 0.2)):
        floor = theory.noise_floor(100.0, noise, error)
        again = theory.noise_bound(100.0, floor**0.5, noise, [error])[-1]
        assert np.isclose(again**2, floor, rtol=1e-12)
    # errors that are not random add up to √κ times as much
    worst = theory.noise_floor(100.0, 0.0, 0.3)
    assert np.isclose(worst, 10.0 * theory.noise_floor(100.0, 0.3), rtol=1e-12)


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ((0.5, 1.0, 0.1, [0.1]), "kappa must be a finite number of at least 1, not 0.5"),
        ((10.0, 1.0, -0.1, [0.1]), "noise must be a finite number of at least 0, not -0.1"),
        ((10.0, 1.0, 0.1, [0.1, np.nan]), "errors: each must be a finite number"),
    ],
)
def test_mistakes_with_noise_are_explained(settings: Any, text: str) -> None:
    with pytest.raises(fs.InputError, match=text):
        theory.noise_bound(*settings)
    with pytest.raises(fs.InputError, match="must be a finite number"):
        theory.noise_floor(settings[0], settings[2], settings[3][-1])


def test_noise_on_the_spiked_ensemble_settles_at_its_floor() -> None:
    kappa, noise = 10.0, 0.1
    p = fs.ensembles.spiked(m=6, d=20, n=50, kappa=kappa)
    s = theory.fedsplit_step(1.0, kappa)
    best = p.solution()
    target = theory.fedsplit_fixed_point(p.clients, best, s)
    z: list[float] = []
    x: list[float] = []

    def look(row: object, state: Any) -> None:
        z.append(float(np.square(state.iterate - target).sum()) / p.m)
        x.append(float(np.square(state.x - best).sum()))

    noisy = NoisyClients(p.clients, noise, 3)
    fs.solve(noisy, fs.FedSplit(s), rounds=300, tol=0, callbacks=[look])
    floor = theory.noise_floor(kappa, noise)
    assert np.isclose(np.mean(z[50:]), floor, rtol=0.05)
    assert np.isclose(p.m * np.mean(x[50:]), floor, rtol=0.2)
