"""The values that flags and settings accept by name. Importing this does not import TensorFlow."""

STRATEGIES = ("auto", "cpu", "gpu", "multi_worker", "tpu")
PRECISIONS = ("float32", "bfloat16", "float16")
STORED_PRECISIONS = (*PRECISIONS, "int8")
REMATERIALIZATIONS = ("none", "selective", "layers")

# Next sentence (BERT), sentence order (ALBERT), masked LM alone (RoBERTa).
OBJECTIVES = ("nsp", "sop", "mlm")
# What is masked as one unit when examples are created, and when dynamic examples are read.
MASKINGS = ("wordpiece", "whole_word", "ngram", "span", "entity", "dynamic")
DYNAMIC_MASKINGS = ("wordpiece", "whole_word", "left_to_right")

# What a tagger reads from a frozen encoder.
FEATURES = tuple(
    """embeddings last second_to_last sum_last_four concat_last_four weighted_sum_last_four
    weighted_sum_all""".split()
)

# How the outputs for the tokens of a text become one vector.
EMBEDDING_POOLINGS = ("mean", "cls", "max")

# Where new tokens go in an extended vocabulary.
PLACEMENTS = ("append", "unused")

# What the label column of a user's own file holds. The last ones train vectors.
VECTOR_TYPES = ("similarity", "pairs")
LABEL_TYPES = ("class", "classes", "number", "tags", *VECTOR_TYPES)

# Ranges of numbers, for `option`. Larger numbers crash libraries or exhaust memory.
SHARE = {"at_least": 0, "at_most": 1}
SEED = {"at_least": 0, "at_most": 2**32 - 1}
RATE = {"at_least": 0, "at_most": 100}
BATCH = {"at_least": 1, "at_most": 2**17}
VOCABULARY = {"at_least": 1, "at_most": 10_000_000}
WORKERS = {"at_least": 1, "at_most": 1024}
# Numbers of tokens: any; in [CLS] a [SEP]; in [CLS] a [SEP] b [SEP].
TOKENS = {"at_least": 1, "at_most": 2**15}
SINGLE_LENGTH = {"at_least": 3, "at_most": 2**15}
PAIR_LENGTH = {"at_least": 5, "at_most": 2**15}
