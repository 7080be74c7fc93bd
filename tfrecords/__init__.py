"""Pre-training records on disk, and what every command is made of."""

__version__ = "0.1.0"
