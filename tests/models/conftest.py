"""Lets the tests here import what they share, which pytest's importlib mode does not."""

import pathlib
import sys

sys.path.append(str(pathlib.Path(__file__).parent))
