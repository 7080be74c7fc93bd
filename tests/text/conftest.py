"""Makes the oracles beside the tests importable, which pytest's importlib mode does not do."""

import pathlib
import sys

sys.path.append(str(pathlib.Path(__file__).parent))
