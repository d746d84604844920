"""The laws, one function each. Columns: N parameters, D training tokens or tasks, C compute, x any of them.

Every size is in the units of its column; state which N (non-embedding, total) and C (training, total) they
are in the study. Amplitudes absorb those units, exponents and asymptotes do not.
"""

from __future__ import annotations

import numpy as np

from rlkit.laws.law import REAL, SHARE, along, law

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


def _saturating_derivatives(x, *, E, A, alpha):
    term = _power(x, -alpha)
    scaled = A * term
    return E + scaled, {"E": 1.0, "A": term, "alpha": scaled * -np.log(x)}


@law(
    "saturating_power",
    linear=("E", "A"),
    starts={"alpha": np.geomspace(0.02, 4, 24)},
    derivatives=_saturating_derivatives,
    asymptote="E",
    source="y = E + A·x^-alpha (Henighan et al. 2020, arXiv 2010.14701, eq. 1.1)",
)
def saturating_power(x, *, E, A, alpha):
    return E + A * _power(x, -alpha)


def _chinchilla_derivatives(N, D, *, E, A, alpha, B, beta):
    n, d = _power(N, -alpha), _power(D, -beta)
    a, b = A * n, B * d
    return E + a + b, {"E": 1.0, "A": n, "alpha": a * -np.log(N), "B": d, "beta": b * -np.log(D)}


@law(
    "chinchilla",
    linear=("E", "A", "B"),
    starts={"alpha": EXPONENTS, "beta": EXPONENTS},
    derivatives=_chinchilla_derivatives,
    asymptote="E",
    source="L = E + A/N^alpha + B/D^beta (Hoffmann et al. 2022, arXiv 2203.15556, eq. 2)",
)
def chinchilla(N, D, *, E, A, alpha, B, beta):
    return E + A * _power(N, -alpha) + B * _power(D, -beta)


def _worth(
    first: np.ndarray, further: np.ndarray, R: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The worth first·(1 + R·(1 - exp(-further/R))) of units used 1 + further times, exp(-further/R), and the
    derivative of the worth in R."""
    q = further / R
    left = np.exp(-q)
    return first * (1 + R * (1 - left)), left, first * (1 - left - q * left)


def _usable(N, U, A, alpha, B, beta) -> tuple[np.ndarray, np.ndarray]:
    """The parameters that U unique tokens can use, at most N, and ln(alpha·A/(beta·B))."""
    ratio = np.log(alpha * A / (beta * B))
    return np.minimum(np.exp((ratio + beta * np.log(U)) / alpha), N), ratio


def _data_constrained_derivatives(N, D, U, *, E, A, alpha, B, beta, R_D, R_N):
    base, ratio = _usable(N, U, A, alpha, B, beta)
    tokens, _, d_tokens = _worth(np.minimum(D, U), np.maximum(D / U - 1, 0), R_D)
    size, left, d_size = _worth(base, N / base - 1, R_N)
    a, b = A * _power(size, -alpha), B * _power(tokens, -beta)
    by_size, by_tokens = -alpha * a / size, -beta * b / tokens
    # dL/d ln base, where the base is the optimum for U and not N itself
    by_base = np.where(base < N, by_size * (1 + R_N * (1 - left) - left * N / base) * base, 0.0) / alpha
    return E + a + b, {
        "E": 1.0,
        "A": (a + by_base) / A,
        "alpha": -a * np.log(size) + by_base * (1 - ratio - beta * np.log(U)) / alpha,
        "B": (b - by_base) / B,
        "beta": -b * np.log(tokens) + by_base * (np.log(U) - 1 / beta),
        "R_D": by_tokens * d_tokens,
        "R_N": by_size * d_size,
    }


@law(
    "data_constrained",
    starts={"R_D": (2.0, 8.0, 30.0), "R_N": (2.0, 8.0, 30.0)},
    derivatives=_data_constrained_derivatives,
    like="chinchilla",
    asymptote="E",
    source="Muennighoff et al. 2023, arXiv 2305.16264, eqs. 5-7; D tokens seen, U unique ones",
)
def data_constrained(N, D, U, *, E, A, alpha, B, beta, R_D, R_N):
    """Repeated tokens and excess parameters decay in worth with half-lives R_D and R_N.

    U_N, the parameters that U unique tokens can use, is Chinchilla's optimal N for them.
    """
    base, _ = _usable(N, U, A, alpha, B, beta)
    tokens = _worth(np.minimum(D, U), np.maximum(D / U - 1, 0), R_D)[0]
    return E + A * _power(_worth(base, N / base - 1, R_N)[0], -alpha) + B * _power(tokens, -beta)


def _sigmoid_derivatives(C, *, R0, A, C_mid, B):
    u = B * (np.log(C_mid) - np.log(C))
    share = 1 / (1 + np.exp(u))
    rise = (A - R0) * share
    slope = rise * (1 - share)
    return R0 + rise, {"R0": 1 - share, "A": share, "C_mid": slope * (-B / C_mid), "B": -slope * u / B}


@law(
    "sigmoid",
    linear=("R0", "A"),
    bounds={"R0": SHARE, "A": SHARE},
    starts={"C_mid": along("C", 0.5, 4.0, 12), "B": (0.4, 0.7, 1.0, 1.5, 2.2, 3.5, 6.0)},
    derivatives=_sigmoid_derivatives,
    space="linear",
    identified_by=("C_mid", "C"),
    asymptote="A",
    source="R = R0 + (A - R0)/(1 + (C_mid/C)^B) (ScaleRL, arXiv 2510.13786, eq. 1)",
)
def sigmoid(C, *, R0, A, C_mid, B):
    return R0 + (A - R0) / (1 + np.exp(B * (np.log(C_mid) - np.log(C))))


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


def _intrinsic_derivatives(N, E, *, N_c, alpha_N, E_c, alpha_E):
    slow, size, interactions = 1 / alpha_N + 1 / alpha_E, np.log(N_c / N), np.log(E_c / E)
    total = np.logaddexp(alpha_N * size, alpha_E * interactions)
    share = np.exp(alpha_N * size - total)
    return -total * slow, {
        "N_c": -slow * share * alpha_N / N_c,
        "alpha_N": -slow * share * size + total / alpha_N**2,
        "E_c": -slow * (1 - share) * alpha_E / E_c,
        "alpha_E": -slow * (1 - share) * interactions + total / alpha_E**2,
    }


@law(
    "intrinsic",
    starts={
        "N_c": along("N", 0.03, 30, 4),
        "E_c": along("E", 0.03, 30, 4),
        "alpha_N": (0.2, 0.5, 1.0),
        "alpha_E": (0.2, 0.5, 1.0),
    },
    derivatives=_intrinsic_derivatives,
    returns="log",
    source="I^-b = (N_c/N)^alpha_N + (E_c/E)^alpha_E with 1/b = 1/alpha_N + 1/alpha_E "
    "(Hilton et al. 2023, arXiv 2301.13442); y from rlkit.laws.intrinsic_performance",
)
def intrinsic(N, E, *, N_c, alpha_N, E_c, alpha_E):
    exponent = 1 / (1 / alpha_N + 1 / alpha_E)
    size, interactions = alpha_N * np.log(N_c / N), alpha_E * np.log(E_c / E)
    return -np.logaddexp(size, interactions) / exponent


@law(
    "overoptimization_bon",
    linear=("alpha", "beta"),
    bounds={"alpha": REAL, "beta": REAL},
    space="linear",
    source="R = d·(alpha - beta·d), d = sqrt(KL) (Gao et al. 2022, arXiv 2210.10760, best of n)",
)
def overoptimization_bon(d, *, alpha, beta):
    return d * (alpha - beta * d)


@law(
    "overoptimization_rl",
    linear=("alpha", "beta"),
    bounds={"alpha": REAL, "beta": REAL},
    space="linear",
    source="R = d·(alpha - beta·ln d), d = sqrt(KL) (Gao et al. 2022, arXiv 2210.10760, RL); 0 at d = 0",
)
def overoptimization_rl(d, *, alpha, beta):
    return d * alpha - beta * d * np.log(np.where(d > 0, d, 1.0))


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
    from scipy.special import betaln

    return -np.expm1(betaln(alpha, beta + k) - betaln(alpha, beta))


def _beta_binomial_derivatives(c, n, *, alpha, beta):
    from scipy.special import digamma

    both = digamma(alpha + beta + n) - digamma(alpha + beta)
    return beta_binomial.function(c, n, alpha=alpha, beta=beta), {
        "alpha": digamma(alpha) - digamma(alpha + c) + both,
        "beta": digamma(beta) - digamma(beta + n - c) + both,
    }


@law(
    "beta_binomial",
    starts={"alpha": (0.05, 0.2, 1.0, 3.0), "beta": (0.5, 2.0, 10.0, 60.0)},
    derivatives=_beta_binomial_derivatives,
    target="c",
    predictor=_beta_binomial_pass,
    space="linear",
    source="c of n correct with rates from Beta(alpha, beta); pass@k = 1 - B(alpha, beta + k)/B(alpha, beta)",
)
def beta_binomial(c, n, *, alpha, beta):
    """-ln likelihood of c correct out of n, without the binomial coefficient."""
    from scipy.special import betaln

    return betaln(alpha, beta) - betaln(alpha + c, beta + n - c)


def _transfer_derivatives(D, D_other, *, E, A, tau, beta):
    total = D + tau * D_other
    term = _power(total, -beta)
    scaled = A * term
    return E + scaled, {
        "E": 1.0,
        "A": term,
        "tau": scaled * (-beta * D_other / total),
        "beta": -scaled * np.log(total),
    }


@law(
    "transfer",
    linear=("E", "A"),
    bounds={"tau": (0.0, 10.0)},
    derivatives=_transfer_derivatives,
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
    starts={"t": (-8.0, -4.0, -2.0, -1.0, -0.3, 0.3, 1.0, 2.0)},
    asymptote="c",
    source="L = c + k·exp(t·r), r the domain's share of the data (Ye et al. 2024, arXiv 2403.16952); "
    "fit one a domain with group=",
)
def mixture(r, *, c, k, t):
    return c + k * np.exp(t * r)
