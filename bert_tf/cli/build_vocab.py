"""Builds, extends or measures a WordPiece vocabulary (vocab.txt).

  python -m bert_tf.build_vocab --input_file='a/*.txt' --output_file=vocab.txt
  python -m bert_tf.build_vocab --extend_vocab=bert-base-uncased/vocab.txt \\
    --input_file='b/*' --num_new_tokens=1000 --output_file=medical/vocab.txt
  python -m bert_tf.build_vocab --input_file=en.txt --report_vocab=vocab.txt

The first command builds a vocabulary from text. The second extends a published one with the tokens
that shorten the text of a domain most. The third writes nothing: it reports how well a vocabulary
covers a text, as the other two do, too. The text may be in any language, of any size and in any
form that create_pretraining_data reads, with the same flags: text files, JSON lines, Parquet, TFDS.

The tokenizer that reads the text later also splits it into words here, so every learned token can
occur. The same text gives the same file, byte for byte, on any number of cores. A vocabulary from
other text or flags is replaced only with --overwrite.

Ids of a new vocabulary follow the published ones: [PAD] is 0, then come [unused] tokens for words
of your own, then [UNK], [CLS], [SEP] and [MASK], characters, and tokens from frequent to rare.

--extend_vocab keeps all old ids. medical/vocab.txt.mapping.json records which old embeddings
each new one starts from: pass it to run_pretraining or run_finetuning as --init_vocab_mapping, with
the --init_checkpoint to grow, or to convert_checkpoint, with --vocab_file and --from.
"""

from bert_tf.base import command
from bert_tf.vocabulary.vocabulary_options import VocabularyOptions

Options = VocabularyOptions
run = command.late("bert_tf.vocabulary.building:build_vocab")

if __name__ == "__main__":
    command.run(__name__)
