"""What programs find in the sandbox of this machine."""

from pathlib import Path

import pytest

from rlkit.sandbox.levels import choose


def needs_packages(level: str = "auto") -> None:
    """Skip where programs run as another user, who cannot read the packages that are installed here."""
    private = [p for p in Path(pytest.__file__).resolve().parents if not p.stat().st_mode & 0o001]
    if choose(level) == "rlimits" and private:
        pytest.skip(f"without bubblewrap programs run as another user, who cannot read {private[-1]}")
