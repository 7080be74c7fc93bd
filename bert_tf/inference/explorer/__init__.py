"""A page to explore what a model does with a text."""
