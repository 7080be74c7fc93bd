"""What every command is made of."""

__version__ = "0.1.0"
