"""A page to explore what a model does with a text."""

from bert_tf.inference.explorer.server import notebook_page

__all__ = ["notebook_page"]
