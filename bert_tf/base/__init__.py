"""What every command is made of."""

__version__ = "0.1.0"
SUMMARY = (
    "BERT for TensorFlow: start from raw text or a published checkpoint, work in Python or on the "
    "command line, and finish with a SavedModel that turns strings into predictions"
)
SITE = "https://bert-tf.github.io/bert_tf"
