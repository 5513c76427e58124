"""Noise on FedSplit's messages: the bounds in the mean square, checked against runs."""

from typing import Any

import numpy as np

import fedsplit as fs
from fedsplit import theory
from open.noise import NoisyClients, noise_bound, noise_floor


def test_without_noise_the_bound_is_the_master_theorems() -> None:
    errors = np.array([0.1, 0.2, 0.05])
    found = noise_bound(50.0, 3.0, 0.0, errors)
    assert np.allclose(found, theory.master_bound(50.0, 3.0, errors), rtol=1e-14)


def test_the_floor_of_noise_is_a_fixed_point_of_its_recursion() -> None:
    assert np.isclose(noise_floor(16.0, 0.3), 0.3**2 * 25.0 / 4.0, rtol=1e-14)
    for noise, error in ((0.3, 0.0), (0.0, 0.2), (0.3, 0.2)):
        floor = noise_floor(100.0, noise, error)
        again = noise_bound(100.0, floor**0.5, noise, [error])[-1]
        assert np.isclose(again**2, floor, rtol=1e-12)
    # errors that are not random add up to √κ times as much
    worst = noise_floor(100.0, 0.0, 0.3)
    assert np.isclose(worst, 10.0 * noise_floor(100.0, 0.3), rtol=1e-12)


def test_noise_on_the_spiked_ensemble_settles_at_its_floor() -> None:
    kappa, noise = 10.0, 0.1
    p = fs.ensembles.spiked(m=6, d=20, n=50, kappa=kappa)
    s = theory.fedsplit_step(1.0, kappa)
    best = p.solution()
    target = theory.fedsplit_fixed_point(p.clients, best, s)
    z: list[float] = []
    x: list[float] = []

    def look(row: object, state: Any) -> None:
        z.append(float(np.square(state.z - target).sum()) / p.m)
        x.append(float(np.square(state.x - best).sum()))

    noisy = NoisyClients(p.clients, noise, 3)
    fs.solve(noisy, fs.FedSplit(s), rounds=300, tol=0, callbacks=[look])
    floor = noise_floor(kappa, noise)
    assert np.isclose(np.mean(z[50:]), floor, rtol=0.05)
    assert np.isclose(p.m * np.mean(x[50:]), floor, rtol=0.2)
