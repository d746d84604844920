"""Widgets for notebooks: the ablation panel, the law explorer and the sample browser; runs that outlive a notebook.

In: a params file, a fitted law, or a folder of results. Out: widgets, which leave a picture or a table in the
notebook for readers without JavaScript, and runs in processes of their own (launching.py).
"""

from rlkit.panels.ablation import panel
from rlkit.panels.explorers import law_explorer, sample_browser

__all__ = ["law_explorer", "panel", "sample_browser"]
