"""The processor time of Muon's step, compared with Adam's, with the published iteration, and with forward and backward.

    python benchmarks/optimisers.py                      Mini-BERT, 2 × 16 × 64 tokens, 1 and 2 threads

Processor time, the least of several rounds: a busy machine makes waiting longer, but not this. Threads share it; on an
idle machine, the time on the clock, printed beside it, falls with their number. Singular values below 1/200 of the
bound (training/orthogonal.py) stay small, so those are left out.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits
from train_step import batches

from mini_bert.models.mini import MiniBERT
from mini_bert.training.muon import Muon, block_matrices
from mini_bert.training.optim import Adam
from mini_bert.training.orthogonal import orthogonalised
from mini_bert.training.parallel import Team

ROUNDS = 20


def least(work: Callable[[], Any], rounds: int = ROUNDS, clock: Callable[[], float] = time.process_time) -> float:
    """Milliseconds of processor time, or of another clock"""
    times = []
    for _ in range(rounds):
        start = clock()
        work()
        times.append(clock() - start)
    return 1000 * min(times)


def published(x: np.ndarray) -> np.ndarray:
    """Five steps of one polynomial, after division by the Frobenius norm (Jordan et al. 2024)"""
    x = x.T if x.shape[0] > x.shape[1] else x
    x = x / np.linalg.norm(x)
    for _ in range(5):
        gram = x @ x.T
        x = 3.4445 * x + (-4.775 * gram + 2.0315 * gram @ gram) @ x
    return x


def values_of_large(before: np.ndarray, after: np.ndarray) -> np.ndarray:
    """The singular values that a matrix has afterwards, of those that were above 1/200 of the bound"""
    old = np.linalg.svd(before, full_matrices=False)
    u, v = (old[0], old[2]) if before.shape == after.shape else (old[2].T, old[0].T)
    values = np.einsum("ir,ij,rj->r", u, after, v)
    return values[old[1] > (old[1] ** 8).sum() ** 0.125 / 200]


def main() -> None:
    rng = np.random.default_rng(0)
    with threadpool_limits(1, "blas"):
        matrices = [
            rng.normal(size=(param.shape[0], param.shape[1] // param.matrices)).astype(np.float32)
            for param in block_matrices(MiniBERT(seed=0))
            for _ in range(param.matrices)
        ]
        for name, way in (("ours", orthogonalised), ("published", published)):
            each = [values_of_large(matrix, way(matrix)) for matrix in matrices]
            took = least(lambda way=way: [way(matrix) for matrix in matrices])
            low, high = min(map(np.min, each)), max(map(np.max, each))
            print(f"{len(matrices)} matrices, {name:9}: {took:6.1f} ms; singular values {low:.2f} to {high:.2f}")
    (parts,) = batches(1, parts=2, sequences=16)
    for threads in (1, 2):
        model = MiniBERT(seed=0)
        adam, muon = Adam(model.flat), Muon(model)
        with Team(model, threads) as team:
            gradient = least(lambda team=team: team.gradient(parts))
            steps = [least(lambda o=o, team=team: o.step(1e-9, map=team.map)) for o in (adam, muon)]
            waited = least(lambda team=team: muon.step(1e-9, map=team.map), clock=time.perf_counter)  # noqa: B023
        print(
            f"{threads} thread(s): forward and backward {gradient:.0f} ms, Adam {steps[0]:.1f} ms, Muon {steps[1]:.1f} "
            f"ms ({waited:.1f} on the clock); a step takes {(gradient + steps[1]) / (gradient + steps[0]):.2f} times "
            "as long"
        )


if __name__ == "__main__":
    main()
