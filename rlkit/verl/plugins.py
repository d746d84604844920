"""Imported by each of verl's processes (VERL_USE_EXTERNAL_MODULES) of a run that has plugins: imports these."""

import os

from rlkit.registry import PLUGINS, load_plugins

load_plugins(filter(None, os.environ.get(PLUGINS, "").split(os.pathsep)))
