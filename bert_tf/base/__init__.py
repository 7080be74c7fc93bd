"""What every command is made of."""

__version__ = "0.1.0"
# How messages call the types of values.
KINDS = {str: "a string", int: "an integer", float: "a number", bool: "true or false"}
