"""Lets the tests here import the oracles beside them, which pytest's importlib mode does not."""

import pathlib
import sys

sys.path.append(str(pathlib.Path(__file__).parent))
