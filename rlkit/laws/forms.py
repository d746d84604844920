"""The laws, one function each. Columns: N parameters, D training tokens or tasks, C compute, x any of them, in any
units: amplitudes absorb those, exponents and asymptotes do not."""

import numpy as np
from scipy.special import expit

from rlkit.laws.law import REAL, SHARE, along, law

EXPONENTS = (0.05, 0.12, 0.2, 0.3, 0.4, 0.55, 0.8, 1.2, 2.0)
ONE_EXPONENT = np.geomspace(0.02, 4, 24)


def _power(x: np.ndarray, exponent: np.ndarray) -> np.ndarray:
    """x**exponent through one logarithm a row instead of one a cell."""
    return np.exp(exponent * np.log(x))


@law("power", bounds={"alpha": REAL}, starts={"A": (1.0,), "alpha": (0.1,)}, returns="log")
def power(x, *, A, alpha):
    """y = A·x^-alpha"""
    return np.log(A) - alpha * np.log(x)


@law("saturating_power", linear=("E", "A"), starts={"alpha": ONE_EXPONENT})
def saturating_power(x, *, E, A, alpha):
    """y = E + A·x^-alpha (Henighan et al. 2020, arXiv 2010.14701, eq. 1.1)"""
    return E + A * _power(x, -alpha)


@law("logit_linear", linear=("a", "b"), bounds={"a": REAL, "b": REAL}, returns="logit", space="linear")
def logit_linear(x, *, a, b):
    """logit y = a + b·ln x: a pass rate between 0 and 1"""
    return a + b * np.log(x)


@law("chinchilla", linear=("E", "A", "B"), starts={"alpha": EXPONENTS, "beta": EXPONENTS})
def chinchilla(N, D, *, E, A, alpha, B, beta):
    """L = E + A/N^alpha + B/D^beta (Hoffmann et al. 2022, arXiv 2203.15556, eq. 2)"""
    return E + A * _power(N, -alpha) + B * _power(D, -beta)


def _worth(unique: np.ndarray, repeats: np.ndarray, R: np.ndarray) -> np.ndarray:
    """unique·(1 + R·(1 - exp(-repeats/R))); expm1 keeps its digits at a large R, where it is unique·(1 + repeats)."""
    return unique * (1 - R * np.expm1(-repeats / R))


@law(
    "data_constrained", linear=("E",), like="chinchilla",
    starts=dict.fromkeys(("A", "alpha", "B", "beta"), (1.0,)) | dict.fromkeys(("R_D", "R_N"), (2.0, 8.0, 30.0)),
)  # fmt: skip
def data_constrained(N, D, U, *, E, A, alpha, B, beta, R_D, R_N):
    """L = E + A/N'^alpha + B/D'^beta; D' is the worth of D tokens seen, U of them unique, repeats decaying by R_D; N'
    that of N parameters, those beyond U's use decaying by R_N (Muennighoff et al. 2023, arXiv 2305.16264, eqs. 5-7)"""
    usable = np.exp((np.log(alpha * A / (beta * B)) + beta * np.log(U)) / alpha)  # the optimal N for U
    base, unique = np.minimum(usable, N), np.minimum(D, U)
    size, data = _worth(base, N / base - 1, R_N), _worth(unique, D / unique - 1, R_D)
    return E + A * _power(size, -alpha) + B * _power(data, -beta)


@law("repeated_data", linear=("E", "B"), starts={"beta": ONE_EXPONENT, "R_D": (0.5, 2.0, 8.0, 30.0)})
def repeated_data(D, U, *, E, B, beta, R_D):
    """L = E + B/D'^beta: data_constrained of one size, in whose E the term of N is"""
    unique = np.minimum(D, U)
    return E + B * _power(_worth(unique, D / unique - 1, R_D), -beta)


@law(
    "sigmoid", linear=("R0", "A"), bounds={"R0": SHARE, "A": SHARE}, space="linear",
    starts={"C_mid": along("C", 0.5, 4.0, 12), "B": (0.4, 0.7, 1.0, 1.5, 2.2, 3.5, 6.0)},
    identified_by=("A", "C_mid", "C"),
)  # fmt: skip
def sigmoid(C, *, R0, A, C_mid, B):
    """R = R0 + (A - R0)/(1 + (C_mid/C)^B) (ScaleRL, arXiv 2510.13786, eq. 1)"""
    return R0 + (A - R0) * expit(B * (np.log(C) - np.log(C_mid)))


@law(
    "tan", linear=("k_max", "e0", "e1"), bounds={"e0": REAL, "e1": REAL},
    starts={"N0": along("N", 0.01, 30.0, 16)}, returns="log",
)  # fmt: skip
def tan(N, X, *, k_max, N0, e0, e1):
    """ln L = -k(N)·ln X + E0(N), k = k_max·N/(N + N0) (Tan et al. 2025, arXiv 2509.25300); E0(N) = e0 + e1·ln N here,
    so that a size without data can be predicted"""
    return e0 + e1 * np.log(N) - k_max * N / (N + N0) * np.log(X)


@law("best_share", linear=("E", "K"), bounds={"s_best": SHARE}, space="linear")
def best_share(s, *, E, K, s_best):
    """L = E + K·(s - s_best)^2: the share s of one kind of data at which the error is least"""
    return E + K * (s - s_best) ** 2


@law("coverage", starts={"a": (1.0,), "b": (0.3,)}, returns="loglog", space="loglog")
def coverage(k, *, a, b):
    """-ln pass@k = a·k^-b (Brown et al. 2024, arXiv 2407.21787)"""
    return np.log(a) - b * np.log(k)
