"""Finds the polynomial coefficients of vtlite/elementary.py and prints them.

Each is a weighted least-squares fit at Chebyshev nodes in extended precision; the coefficients are rounded to float32
one after another, from the constant up, and the rest is fitted again after each rounding.

    python bench/fit_elementary.py
"""

import numpy as np
from mpmath import cos, exp, log, matrix, mp, mpf, pi, qr_solve, sin, sqrt

mp.prec = 120


def fit(function, degree: int, low, high, weight, fixed=()):
    """Coefficients c_0 .. c_degree (f32) of the polynomial nearest to function on [low, high].

    The error is divided by weight(x). `fixed` gives leading coefficients that are not free.
    """
    known = [mpf(float(np.float32(c))) for c in fixed]
    while len(known) <= degree:
        count = 12 * (degree + 1)
        nodes = [(low + high) / 2 + (high - low) / 2 * cos(pi * (2 * i + 1) / (2 * count)) for i in range(count)]
        free = range(len(known), degree + 1)
        rows = matrix(count, len(free))
        right = matrix(count, 1)
        for i, x in enumerate(nodes):
            for j, power in enumerate(free):
                rows[i, j] = x**power / weight(x)
            right[i] = (function(x) - sum(c * x**k for k, c in enumerate(known))) / weight(x)
        solution, _ = qr_solve(rows, right)
        known.append(mpf(float(np.float32(float(solution[0])))))
    return [np.float32(float(c)) for c in known]


def show(name: str, coefficients) -> None:
    print(f"{name}: " + ", ".join(f"{float(c):.9g}" for c in coefficients))


def split(value, parts: int, bits: int):
    """`value` as a sum of f32 numbers: all but the last hold at most `bits` significant bits."""
    pieces = []
    for i in range(parts):
        piece = np.float32(float(value))
        if i < parts - 1 and bits < 24:
            piece = (piece.view(np.int32) & np.int32(-(1 << (24 - bits)))).view(np.float32)
        pieces.append(piece)
        value -= mpf(float(piece))
    return pieces


def main() -> None:
    half = log(mpf(2)) / 2
    show("exp", fit(exp, 6, -half, half, exp, fixed=(1, 1)))
    for name, degree in (("exp2", 6), ("softmax_exp2", 4)):
        show(name, fit(lambda x: exp(x * log(mpf(2))), degree, mpf(-0.5), mpf(0.5), lambda x: exp(x * log(mpf(2))), fixed=(1,)))
    low, high = sqrt(mpf(1) / 2) - 1, sqrt(mpf(2)) - 1

    def log_tail(f):     # log(1 + f) = f + f^2 tail(f)
        return (log(1 + f) - f) / f**2 if abs(f) > mpf(2) ** -50 else mpf(-0.5) + f / 3

    show("log", fit(log_tail, 8, low, high, lambda f: log(1 + f) / f**2 if abs(f) > mpf(2) ** -20 else 1 / mpf(2) ** -20,
                    fixed=(-0.5,)))
    quarter = (pi / 4) ** 2

    def sin_tail(z):     # sin(r) = r + r^3 tail(r^2)
        r = sqrt(z)
        return (sin(r) - r) / r**3 if z > mpf(2) ** -40 else mpf(-1) / 6 + z / 120

    def cos_tail(z):     # cos(r) = 1 - r^2 / 2 + r^4 tail(r^2)
        return (cos(sqrt(z)) - 1 + z / 2) / z**2 if z > mpf(2) ** -30 else mpf(1) / 24 - z / 720

    show("sin", fit(sin_tail, 3, mpf(0), quarter, lambda z: mpf(1)))
    show("cos", fit(cos_tail, 2, mpf(0), quarter, lambda z: mpf(1)))
    show("ln 2 (high has 15 bits)", split(log(mpf(2)), 2, 15))
    show("pi / 2", split(pi / 2, 3, 24))
    show("log2 e, 2 / pi", [np.float32(float(1 / log(mpf(2)))), np.float32(float(2 / pi))])


if __name__ == "__main__":
    main()
