"""Compute the coefficients in mini_bert/layers/erf.py from the definition of erf, to 60 digits.

    python tests/golden/make_erf.py             print the constants, and whether erf.py has the same ones (10 s)
    python tests/golden/make_erf.py --search    also show how KAPPA was chosen, with all float32 numbers (3 min)

Needs mpmath. Each polynomial is the one of its degree whose *largest* error is smallest (Remez's algorithm).
The weight says how much an error of the polynomial at a point affects erf there, relative to erf.
"""

import math
import sys
from pathlib import Path

import mpmath as mp
import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from mini_bert.layers import erf as module

mp.mp.dps = 60


def minimax(f, weight, low, high, degree, points=1500):
    """Coefficients c (lowest power first) minimising E = max |weight(t) (f(t) − Σ cⱼ tʲ)|, and that E.

    Chebyshev: the best polynomial's error swings between +E and −E at degree + 2 points. Remez: guess these
    points, solve for c and E there (linear equations), look where the error really peaks, repeat.
    """
    grid = [(low + high) / 2 - (high - low) / 2 * mp.cos(mp.pi * k / points) for k in range(points + 1)]
    values, weights = [f(t) for t in grid], [weight(t) for t in grid]
    peaks = [round(points * k / (degree + 1)) for k in range(degree + 2)]
    for _round in range(30):
        equations = mp.matrix(degree + 2, degree + 2)
        for row, k in enumerate(peaks):
            for power in range(degree + 1):
                equations[row, power] = grid[k] ** power
            equations[row, degree + 1] = (-1) ** row / weights[k]
        solution = mp.lu_solve(equations, mp.matrix([values[k] for k in peaks]))
        c, swing = list(solution[: degree + 1]), abs(solution[degree + 1])

        error = [w * (v - mp.polyval(c[::-1], t)) for t, v, w in zip(grid, values, weights, strict=True)]
        if max(map(abs, error)) < swing * (1 + mp.mpf(10) ** -9):
            return c, swing
        peaks = []  # the highest point of every stretch of one sign
        for k, e in enumerate(error):
            if not peaks or e * error[peaks[-1]] < 0:
                peaks.append(k)
            elif abs(e) > abs(error[peaks[-1]]):
                peaks[-1] = k
        while len(peaks) > degree + 2:
            peaks.pop(0 if abs(error[peaks[0]]) < abs(error[peaks[-1]]) else -1)
    raise RuntimeError("Remez's algorithm did not settle")


# float32: erf = A/√(κ + A²), A = x P(x²). An error dP is felt as dP/P · κ/(κ + A²) = dP/P · (1 − erf²).
def p32(t):  # for κ = 1; another κ multiplies P by √κ
    e = mp.erf(mp.sqrt(t))
    return e / mp.sqrt(t * (1 - e * e)) if t else 2 / mp.sqrt(mp.pi)


def p32_weight(t):
    return (1 - mp.erf(mp.sqrt(t)) ** 2) / p32(t)


# float64, |x| < 1: erf = x + x S(x²).
def small64(t):
    return mp.erf(mp.sqrt(t)) / mp.sqrt(t) - 1 if t else 2 / mp.sqrt(mp.pi) - 1


def small64_weight(t):
    return 1 / (1 + small64(t))


# float64, 1 ≤ x ≤ 6: erf = 1 − exp(−x²) R(u), u = 3/(3 + x).
def large64(u):
    x = 3 / u - 3
    return mp.exp(x * x) * mp.erfc(x)


def large64_weight(u):
    x = 3 / u - 3
    return mp.exp(-x * x) / mp.erf(x)


def rounded(coefficients, dtype):
    """Highest power first, rounded once to dtype."""
    return np.array([float(c) for c in coefficients[::-1]], dtype)


def constants32(p, kappa):
    return rounded([c * mp.sqrt(mp.mpf(float(kappa))) for c in p], np.float32)


def show(name, array):
    print(f"{name} = np.array([")
    for number in array:
        print(f"    {number!s},")
    same = np.array_equal(array, getattr(module, name))
    print(f"], np.{array.dtype})" + ("" if same else "  # erf.py DIFFERS"))


def search_kappa(p):
    """Try 256 values of κ on a grid that float32 represents exactly, then the best few with every float32 x.

    "Every" is 2⁻¹⁴ … 4: below, erf(x) = x · 2/√π and each octave repeats the last; above, erf(x) = 1.
    """

    def worst(kappa, x, true):
        """The largest error, in units of the distance between neighbouring float32 numbers (ulp)."""
        module.P32, module.KAPPA = constants32(p, kappa), np.float32(kappa)
        return float(np.max(np.abs(module.erf(x) - true) / np.spacing(true.astype(np.float32))))

    def true_erf(x):
        return np.array([math.erf(v) for v in x.tolist()])

    x = np.geomspace(2**-14, 4, 4_000_000).astype(np.float32)
    true = true_erf(x)
    best = sorted((worst(kappa, x, true), kappa) for kappa in np.arange(2, 4, 1 / 128))[:4]
    worst_of_all = dict.fromkeys([kappa for _, kappa in best] + [1.0], 0.0)
    first, last = np.array([2**-14, 4], np.float32).view(np.int32).tolist()
    for start in range(first, last, 2**21):  # neighbouring floats are neighbouring integers
        x = np.arange(start, start + 2**21, dtype=np.int32).view(np.float32)
        true = true_erf(x)
        for kappa, known in worst_of_all.items():
            worst_of_all[kappa] = max(known, worst(kappa, x, true))
    for kappa, ulp in worst_of_all.items():
        print(f"κ = {kappa:<10} worst error {ulp:.2f} ulp")


if __name__ == "__main__":
    p, error = minimax(p32, p32_weight, mp.mpf(0), mp.mpf(16), 9)
    print(f"# float32: the polynomial alone is good to {float(error * 2**24):.2f} · 2⁻²⁴, relative")
    show("P32", constants32(p, module.KAPPA))
    s, error = minimax(small64, small64_weight, mp.mpf(0), mp.mpf(1), 11)
    print(f"\n# float64, |x| < 1: {float(error * 2**53):.2f} · 2⁻⁵³, relative")
    show("SMALL64", rounded(s, np.float64))
    r, error = minimax(large64, large64_weight, mp.mpf(1) / 3, mp.mpf(3) / 4, 11)
    print(f"\n# float64, |x| ≥ 1: {float(error * 2**53):.2f} · 2⁻⁵³, relative")
    show("LARGE64", rounded(r, np.float64))
    if "--search" in sys.argv:
        print()
        search_kappa(p)
