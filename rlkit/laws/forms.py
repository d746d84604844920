"""The laws, one function each. Columns: N parameters, D training tokens or tasks, C compute, x any of them.

Every size is in the units of its column; state which N (non-embedding, total) and C (training, total) they
are in the study. Amplitudes absorb those units, exponents and asymptotes do not.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import betaln, expit, gammaln

from rlkit.errors import UserError
from rlkit.laws.law import REAL, SHARE, Law, along, law

EXPONENTS = (0.05, 0.12, 0.2, 0.3, 0.4, 0.55, 0.8, 1.2, 2.0)
HALF = (0.2, 0.5, 1.0)
ONE_EXPONENT = np.geomspace(0.02, 4, 24)


def _power(x: np.ndarray, exponent: np.ndarray) -> np.ndarray:
    """x**exponent through one logarithm a row instead of one a cell."""
    return np.exp(exponent * np.log(x))


@law("power", bounds={"alpha": REAL}, starts={"A": (1.0,), "alpha": (0.1,)}, returns="log")
def power(x, *, A, alpha):
    """y = A·x^-alpha"""
    return np.log(A) - alpha * np.log(x)


@law("saturating_power", linear=("E", "A"), starts={"alpha": ONE_EXPONENT}, asymptote="E")
def saturating_power(x, *, E, A, alpha):
    """y = E + A·x^-alpha (Henighan et al. 2020, arXiv 2010.14701, eq. 1.1)"""
    return E + A * _power(x, -alpha)


@law("rising_power", linear=("A", "D"), starts={"B": ONE_EXPONENT}, space="linear", asymptote="A")
def rising_power(C, *, A, D, B):
    """y = A - D·C^-B: a rise towards A"""
    return A - D * _power(C, -B)


@law("logarithmic", linear=("a", "b"), bounds={"a": REAL, "b": REAL}, space="linear")
def logarithmic(x, *, a, b):
    """y = a + b·ln x"""
    return a + b * np.log(x)


@law("logit_linear", linear=("a", "b"), bounds={"a": REAL, "b": REAL}, returns="logit", space="linear")
def logit_linear(x, *, a, b):
    """logit y = a + b·ln x: a pass rate between 0 and 1"""
    return a + b * np.log(x)


@law(
    "logit_plane", linear=("a", "b", "c"), bounds=dict.fromkeys("abc", REAL), returns="logit", space="linear"
)
def logit_plane(N, X, *, a, b, c):
    """logit y = a + b·ln N + c·ln X: a pass rate over two columns"""
    return a + b * np.log(N) + c * np.log(X)


@law(
    "logistic",
    linear=("floor", "ceiling"),
    bounds={"floor": SHARE, "ceiling": SHARE},
    starts={"x_mid": along("x", 0.1, 10.0, 12), "slope": (0.3, 0.6, 1.0, 1.7, 3.0, 6.0)},
    space="linear",
    identified_by=("x_mid", "x"),
    asymptote="ceiling",
)
def logistic(x, *, floor, ceiling, x_mid, slope):
    """y = floor + (ceiling - floor)·logistic(slope·ln(x/x_mid)); floor is y at small x, ceiling at large x"""
    return floor + (ceiling - floor) * expit(slope * (np.log(x) - np.log(x_mid)))


@law("chinchilla", linear=("E", "A", "B"), starts={"alpha": EXPONENTS, "beta": EXPONENTS}, asymptote="E")
def chinchilla(N, D, *, E, A, alpha, B, beta):
    """L = E + A/N^alpha + B/D^beta (Hoffmann et al. 2022, arXiv 2203.15556, eq. 2)"""
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
)
def data_constrained(N, D, U, *, E, A, alpha, B, beta, R_D, R_N):
    """Muennighoff et al. 2023, arXiv 2305.16264, eqs. 5-7; D tokens seen, U unique ones

    Repeated tokens and excess parameters decay in worth with half-lives R_D and R_N. U_N, the parameters that U
    unique tokens can use, is Chinchilla's optimal N for them.
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
)
def sigmoid(C, *, R0, A, C_mid, B):
    """R = R0 + (A - R0)/(1 + (C_mid/C)^B) (ScaleRL, arXiv 2510.13786, eq. 1)"""
    return R0 + (A - R0) * expit(B * (np.log(C) - np.log(C_mid)))


@law(
    "tan",
    linear=("k_max", "e0", "e1"),
    bounds={"e0": REAL, "e1": REAL},
    starts={"N0": along("N", 0.01, 30.0, 16)},
    returns="log",
)
def tan(N, X, *, k_max, N0, e0, e1):
    """ln L = -k(N)·ln X + E0(N), k = k_max·N/(N + N0) (Tan et al. 2025, arXiv 2509.25300); E0(N) = e0 + e1·ln N
    here, so that a size without data can be predicted"""
    return e0 + e1 * np.log(N) - k_max * N / (N + N0) * np.log(X)


def tan_by_size(sizes: ArrayLike) -> Law:
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
        own = [np.isclose(N, size, rtol=1e-9) for size in known]
        level = sum(E0[name] * of_size for name, of_size in zip(offsets, own, strict=True))
        return np.where(np.any(own, axis=0), level - k_max * N / (N + N0) * np.log(X), np.nan)

    return Law(
        "tan_by_size", function, ("N", "X"), ("k_max", "N0", *offsets), linear=("k_max", *offsets),
        bounds=dict.fromkeys(offsets, REAL), starts={"N0": along("N", 0.01, 30.0, 16)}, returns="log",
        source="ln L = -k(N)·ln X + E0 of the size, k = k_max·N/(N + N0) (Tan et al. 2025, arXiv 2509.25300)",
    )  # fmt: skip


@law(
    "intrinsic",
    starts={"N_c": along("N", 0.03, 30, 4), "E_c": along("E", 0.03, 30, 4), "alpha_N": HALF, "alpha_E": HALF},
    returns="log",
)
def intrinsic(N, E, *, N_c, alpha_N, E_c, alpha_E):
    """I^-b = (N_c/N)^alpha_N + (E_c/E)^alpha_E with 1/b = 1/alpha_N + 1/alpha_E (Hilton et al. 2023, arXiv
    2301.13442); y is the least compute that reaches a performance"""
    size, interactions = alpha_N * np.log(N_c / N), alpha_E * np.log(E_c / E)
    return -np.logaddexp(size, interactions) * (1 / alpha_N + 1 / alpha_E)


OVEROPTIMIZATION = {
    "linear": ("alpha", "beta"), "bounds": {"alpha": REAL, "beta": REAL}, "unlogged": ("d",), "space": "linear"
}  # fmt: skip


@law("overoptimization_bon", **OVEROPTIMIZATION)
def overoptimization_bon(d, *, alpha, beta):
    """R = d·(alpha - beta·d), d = sqrt(KL) (Gao et al. 2022, arXiv 2210.10760, best of n)"""
    return d * (alpha - beta * d)


@law("overoptimization_rl", **OVEROPTIMIZATION)
def overoptimization_rl(d, *, alpha, beta):
    """R = d·(alpha - beta·ln d), d = sqrt(KL) (Gao et al. 2022, arXiv 2210.10760, RL); 0 at d = 0"""
    return d * alpha - beta * d * np.log(np.where(d == 0, 1.0, d))


@law("coverage", starts={"a": (1.0,), "b": (0.3,)}, returns="loglog", space="loglog")
def coverage(k, *, a, b):
    """-ln pass@k = a·k^-b (Brown et al. 2024, arXiv 2407.21787)"""
    return np.log(a) - b * np.log(k)


def _beta_binomial_pass(k, *, alpha, beta):
    return -np.expm1(betaln(alpha, beta + k) - betaln(alpha, beta))


def _log_rising(a: np.ndarray, c: np.ndarray) -> np.ndarray:
    """ln(a·(a + 1) ⋯ (a + c - 1)); the difference of two ln Γ loses all digits at a large a, Stirling's does not."""
    small, large = np.minimum(a, 1e5), np.maximum(a, 1e5)
    series = (large - 0.5) * np.log1p(c / large) + c * np.log(large + c) - c
    series = series + (1 / (large + c) - 1 / large) / 12
    return np.where(a < 1e5, gammaln(small + c) - gammaln(small), series)


@law(
    "beta_binomial",
    starts={"alpha": (0.05, 0.2, 1.0, 3.0), "beta": (0.5, 2.0, 10.0, 60.0)},
    target="c",
    predictor=_beta_binomial_pass,
    space="linear",
)
def beta_binomial(c, n, *, alpha, beta):
    """c of n correct with rates from Beta(alpha, beta); pass@k = 1 - B(alpha, beta + k)/B(alpha, beta)

    The value is -ln likelihood, without the binomial coefficient.
    """
    return _log_rising(alpha + beta, n) - _log_rising(alpha, c) - _log_rising(beta, n - c)


@law(
    "transfer",
    linear=("E", "A"),
    bounds={"tau": (0.0, 10.0)},
    unlogged=("D_other",),
    starts={"tau": (0.01, 0.1, 0.3, 0.7, 1.0), "beta": (0.1, 0.2, 0.35, 0.6, 1.0)},
    asymptote="E",
)
def transfer(D, D_other, *, E, A, tau, beta):
    """L = E + A·(D + tau·D_other)^-beta: tau is the worth of a sample of the other domain in samples of this one
    (after Hernandez et al. 2021, arXiv 2102.01293)"""
    return E + A * _power(D + tau * D_other, -beta)


@law(
    "mixture",
    linear=("c", "k"),
    bounds={"t": REAL},
    unlogged=("r",),
    starts={"t": (-8.0, -4.0, -2.0, -1.0, -0.3, 0.3, 1.0, 2.0)},
    asymptote="c",
)
def mixture(r, *, c, k, t):
    """L = c + k·exp(t·r), r the domain's share of the data (Ye et al. 2024, arXiv 2403.16952); fit one a domain with
    group="""
    return c + k * np.exp(t * r)
