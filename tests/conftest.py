"""What all tests share: one thread a process, and which marked tests run where."""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")  # the models of the tests are fastest on one thread
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["WANDB_MODE"] = "disabled"
os.environ["MPLBACKEND"] = "agg"

import importlib.util
import shutil
import signal
import sys

import pytest

# jsonschema, which nbformat imports, would compile its grammars of IRIs for over a second, and does without.
sys.modules.setdefault("rfc3987_syntax", None)  # type: ignore[arg-type]

# A shell's background jobs start with interrupts ignored, which the runs under test would inherit.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True, scope="session")
def own_warm_starts(tmp_path_factory):
    """Warm starts of the tests are shared between tests, and not with the user's."""
    from rlkit.training import warm_cache

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(warm_cache, "CACHE", tmp_path_factory.getbasetemp() / "warm")
        yield


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--slow", action="store_true", help="also run the tests marked slow")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        for marker, here, needs in (
            ("slow", config.getoption("--slow"), "takes minutes: make test SLOW=1"),
            ("gpu", shutil.which("nvidia-smi"), "needs an NVIDIA GPU"),
            ("engines", importlib.util.find_spec("vllm"), "needs vLLM: pip install rlkit[gpu]"),
        ):
            if not here and (mark := item.get_closest_marker(marker)):
                why = mark.kwargs.get("reason") or " ".join(map(str, mark.args))
                item.add_marker(pytest.mark.skip(reason=f"{marker}: {why or needs}"))
