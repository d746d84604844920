"""The laws, one function each. Columns: N parameters, D training tokens or tasks, C compute, x any of them.

Every size is in the units of its column; state which N (non-embedding, total) and C (training, total) they
are in the study. Amplitudes absorb those units, exponents and asymptotes do not.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.special import betaln, expit, gammaln

from rlkit.errors import UserError
from rlkit.laws.law import REAL, SHARE, Law, along, law

EXPONENTS = (0.05, 0.12, 0.2, 0.3, 0.4, 0.55, 0.8, 1.2, 2.0)


def _power(x: np.ndarray, exponent: np.ndarray) -> np.ndarray:
    """x**exponent through one logarithm a row instead of one a cell."""
    return np.exp(exponent * np.log(x))


@law(
    "power",
    bounds={"alpha": REAL},
    starts={"A": (1.0,), "alpha": (0.1,)},
    returns="log",
    source="y = A·x^-alpha",
)
def power(x, *, A, alpha):
    return np.log(A) - alpha * np.log(x)


@law(
    "saturating_power",
    linear=("E", "A"),
    starts={"alpha": np.geomspace(0.02, 4, 24)},
    asymptote="E",
    source="y = E + A·x^-alpha (Henighan et al. 2020, arXiv 2010.14701, eq. 1.1)",
)
def saturating_power(x, *, E, A, alpha):
    return E + A * _power(x, -alpha)


@law(
    "rising_power",
    linear=("A", "D"),
    starts={"B": np.geomspace(0.02, 4, 24)},
    space="linear",
    asymptote="A",
    source="y = A - D·C^-B: a rise towards A",
)
def rising_power(C, *, A, D, B):
    return A - D * _power(C, -B)


@law(
    "logarithmic",
    linear=("a", "b"),
    bounds={"a": REAL, "b": REAL},
    space="linear",
    source="y = a + b·ln x",
)
def logarithmic(x, *, a, b):
    return a + b * np.log(x)


@law(
    "logit_linear",
    linear=("a", "b"),
    bounds={"a": REAL, "b": REAL},
    returns="logit",
    space="linear",
    source="logit y = a + b·ln x: a pass rate between 0 and 1",
)
def logit_linear(x, *, a, b):
    return a + b * np.log(x)


@law(
    "logit_plane",
    linear=("a", "b", "c"),
    bounds={"a": REAL, "b": REAL, "c": REAL},
    returns="logit",
    space="linear",
    source="logit y = a + b·ln N + c·ln X: a pass rate over two columns",
)
def logit_plane(N, X, *, a, b, c):
    return a + b * np.log(N) + c * np.log(X)


@law(
    "logistic",
    linear=("floor", "ceiling"),
    bounds={"floor": SHARE, "ceiling": SHARE},
    starts={"x_mid": along("x", 0.1, 10.0, 12), "slope": (0.3, 0.6, 1.0, 1.7, 3.0, 6.0)},
    space="linear",
    identified_by=("x_mid", "x"),
    asymptote="ceiling",
    source="y = floor + (ceiling - floor)·logistic(slope·ln(x/x_mid)); floor is y at small x, ceiling at large x",
)
def logistic(x, *, floor, ceiling, x_mid, slope):
    return floor + (ceiling - floor) * expit(slope * (np.log(x) - np.log(x_mid)))


@law(
    "chinchilla",
    linear=("E", "A", "B"),
    starts={"alpha": EXPONENTS, "beta": EXPONENTS},
    asymptote="E",
    source="L = E + A/N^alpha + B/D^beta (Hoffmann et al. 2022, arXiv 2203.15556, eq. 2)",
)
def chinchilla(N, D, *, E, A, alpha, B, beta):
    return E + A * _power(N, -alpha) + B * _power(D, -beta)


def _worth(first: np.ndarray, further: np.ndarray, R: np.ndarray) -> np.ndarray:
    """The worth first·(1 + R·(1 - exp(-further/R))) of units used 1 + further times; without cancellation at large
    R, where it is first·(1 + further)."""
    return first * (1 - R * np.expm1(-further / R))


@law(
    "data_constrained",
    linear=("E",),
    starts={"R_D": (2.0, 8.0, 30.0), "R_N": (2.0, 8.0, 30.0)},
    like="chinchilla",
    asymptote="E",
    source="Muennighoff et al. 2023, arXiv 2305.16264, eqs. 5-7; D tokens seen, U unique ones",
)
def data_constrained(N, D, U, *, E, A, alpha, B, beta, R_D, R_N):
    """Repeated tokens and excess parameters decay in worth with half-lives R_D and R_N.

    U_N, the parameters that U unique tokens can use, is Chinchilla's optimal N for them.
    """
    usable = np.exp((np.log(alpha * A / (beta * B)) + beta * np.log(U)) / alpha)
    base = np.minimum(usable, N)
    tokens = _worth(np.minimum(D, U), np.maximum(D / U - 1, 0), R_D)
    return E + A * _power(_worth(base, N / base - 1, R_N), -alpha) + B * _power(tokens, -beta)


@law(
    "sigmoid",
    linear=("R0", "A"),
    bounds={"R0": SHARE, "A": SHARE},
    starts={"C_mid": along("C", 0.5, 4.0, 12), "B": (0.4, 0.7, 1.0, 1.5, 2.2, 3.5, 6.0)},
    space="linear",
    identified_by=("C_mid", "C"),
    asymptote="A",
    source="R = R0 + (A - R0)/(1 + (C_mid/C)^B) (ScaleRL, arXiv 2510.13786, eq. 1)",
)
def sigmoid(C, *, R0, A, C_mid, B):
    return R0 + (A - R0) * expit(B * (np.log(C) - np.log(C_mid)))


@law(
    "tan",
    linear=("k_max", "e0", "e1"),
    bounds={"e0": REAL, "e1": REAL},
    starts={"N0": along("N", 0.01, 30.0, 16)},
    returns="log",
    source="ln L = -k(N)·ln X + E0(N), k = k_max·N/(N + N0) (Tan et al. 2025, arXiv 2509.25300); "
    "E0(N) = e0 + e1·ln N here, so that a size without data can be predicted",
)
def tan(N, X, *, k_max, N0, e0, e1):
    return e0 + e1 * np.log(N) - k_max * N / (N + N0) * np.log(X)


def tan_by_size(sizes: Sequence[float]) -> Law:
    """The law `tan` with an E0 of its own for each size, named E0_1 … in the order of the sizes.

    Args:
        sizes: the values of N that are fitted; a size that is not among them cannot be predicted.

    Raises:
        UserError: fewer than two sizes.
    """
    known = np.unique(np.asarray(sizes, dtype=float))
    if len(known) < 2:
        raise UserError(f"tan_by_size needs two sizes or more, not {len(known)}.")
    offsets = tuple(f"E0_{i + 1}" for i in range(len(known)))

    def function(N, X, *, k_max, N0, **E0):
        level = sum(
            E0[name] * np.isclose(N, size, rtol=1e-9) for name, size in zip(offsets, known, strict=True)
        )
        seen = np.isclose(np.asarray(N)[:, None], known, rtol=1e-9).any(axis=1)
        return np.where(seen, level - k_max * N / (N + N0) * np.log(X), np.nan)

    return Law(
        "tan_by_size", function, ("N", "X"), ("k_max", "N0", *offsets), linear=("k_max", *offsets),
        bounds=dict.fromkeys(offsets, REAL), starts={"N0": along("N", 0.01, 30.0, 16)}, returns="log",
        source="ln L = -k(N)·ln X + E0 of the size, k = k_max·N/(N + N0) (Tan et al. 2025, arXiv 2509.25300)",
    )  # fmt: skip


@law(
    "intrinsic",
    starts={
        "N_c": along("N", 0.03, 30, 4),
        "E_c": along("E", 0.03, 30, 4),
        "alpha_N": (0.2, 0.5, 1.0),
        "alpha_E": (0.2, 0.5, 1.0),
    },
    returns="log",
    source="I^-b = (N_c/N)^alpha_N + (E_c/E)^alpha_E with 1/b = 1/alpha_N + 1/alpha_E "
    "(Hilton et al. 2023, arXiv 2301.13442); y is the least compute that reaches a performance",
)
def intrinsic(N, E, *, N_c, alpha_N, E_c, alpha_E):
    size, interactions = alpha_N * np.log(N_c / N), alpha_E * np.log(E_c / E)
    return -np.logaddexp(size, interactions) * (1 / alpha_N + 1 / alpha_E)


@law(
    "overoptimization_bon",
    linear=("alpha", "beta"),
    bounds={"alpha": REAL, "beta": REAL},
    unlogged=("d",),
    space="linear",
    source="R = d·(alpha - beta·d), d = sqrt(KL) (Gao et al. 2022, arXiv 2210.10760, best of n)",
)
def overoptimization_bon(d, *, alpha, beta):
    return d * (alpha - beta * d)


@law(
    "overoptimization_rl",
    linear=("alpha", "beta"),
    bounds={"alpha": REAL, "beta": REAL},
    unlogged=("d",),
    space="linear",
    source="R = d·(alpha - beta·ln d), d = sqrt(KL) (Gao et al. 2022, arXiv 2210.10760, RL); 0 at d = 0",
)
def overoptimization_rl(d, *, alpha, beta):
    return d * alpha - beta * d * np.log(np.where(d == 0, 1.0, d))


@law(
    "coverage",
    starts={"a": (1.0,), "b": (0.3,)},
    returns="loglog",
    space="loglog",
    source="-ln pass@k = a·k^-b (Brown et al. 2024, arXiv 2407.21787)",
)
def coverage(k, *, a, b):
    return np.log(a) - b * np.log(k)


def _beta_binomial_pass(k, *, alpha, beta):
    return -np.expm1(betaln(alpha, beta + k) - betaln(alpha, beta))


def _log_rising(a: np.ndarray, c: np.ndarray) -> np.ndarray:
    """ln(a·(a + 1) ⋯ (a + c - 1)); the difference of two ln Γ loses all digits at a large a, Stirling's does not."""
    if np.all(a < 1e5):
        return gammaln(a + c) - gammaln(a)
    large = np.maximum(a, 1e5)
    series = (
        (large - 0.5) * np.log1p(c / large) + c * np.log(large + c) - c + (1 / (large + c) - 1 / large) / 12
    )
    return np.where(a < 1e5, gammaln(np.minimum(a, 1e5) + c) - gammaln(np.minimum(a, 1e5)), series)


@law(
    "beta_binomial",
    starts={"alpha": (0.05, 0.2, 1.0, 3.0), "beta": (0.5, 2.0, 10.0, 60.0)},
    target="c",
    predictor=_beta_binomial_pass,
    space="linear",
    source="c of n correct with rates from Beta(alpha, beta); pass@k = 1 - B(alpha, beta + k)/B(alpha, beta)",
)
def beta_binomial(c, n, *, alpha, beta):
    """-ln likelihood of c correct out of n, without the binomial coefficient."""
    return _log_rising(alpha + beta, n) - _log_rising(alpha, c) - _log_rising(beta, n - c)


@law(
    "transfer",
    linear=("E", "A"),
    bounds={"tau": (0.0, 10.0)},
    unlogged=("D_other",),
    starts={"tau": (0.01, 0.1, 0.3, 0.7, 1.0), "beta": (0.1, 0.2, 0.35, 0.6, 1.0)},
    asymptote="E",
    source="L = E + A·(D + tau·D_other)^-beta: tau is the worth of a sample of the other domain in samples "
    "of this one (after Hernandez et al. 2021, arXiv 2102.01293)",
)
def transfer(D, D_other, *, E, A, tau, beta):
    return E + A * _power(D + tau * D_other, -beta)


@law(
    "mixture",
    linear=("c", "k"),
    bounds={"t": REAL},
    unlogged=("r",),
    starts={"t": (-8.0, -4.0, -2.0, -1.0, -0.3, 0.3, 1.0, 2.0)},
    asymptote="c",
    source="L = c + k·exp(t·r), r the domain's share of the data (Ye et al. 2024, arXiv 2403.16952); "
    "fit one a domain with group=",
)
def mixture(r, *, c, k, t):
    return c + k * np.exp(t * r)
