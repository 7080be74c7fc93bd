"""Computes the ids in tokenizer_golden.json anew: those that transformers gives its texts.

  python tests/weights/formats/make_tokenizer_golden.py

The file holds folders of tokenizers. "..., saved again" is what `save_pretrained` made of the one
before, and "saved over bert_tf's files" what it and `add_tokens` made of a folder that
convert_checkpoint had written. Made with transformers 5.24.0; version 4 is 4.57.6.
"""

import json
import pathlib
import tempfile

from transformers import AutoTokenizer

GOLDEN = pathlib.Path(__file__).with_name("tokenizer_golden.json")


def ids(files: dict[str, object], texts: list[str]) -> list[list[int]]:
    """Returns the ids of texts, given files: text, or a value to write as JSON."""
    with tempfile.TemporaryDirectory() as folder:
        for name, content in files.items():
            content = content if isinstance(content, str) else json.dumps(content)
            pathlib.Path(folder, name).write_text(content, encoding="utf-8")
        tokenizer = AutoTokenizer.from_pretrained(folder)
    return [tokenizer.encode(text, add_special_tokens=False) for text in texts]


if __name__ == "__main__":
    golden = json.loads(GOLDEN.read_text("utf-8"))
    texts = golden["texts"]
    for name, case in golden.items():
        if name != "texts":
            case["ids"] = ids(case["files"], texts)
    lines = (f"{json.dumps(key)}: {json.dumps(value)}" for key, value in golden.items())
    GOLDEN.write_text("{\n" + ",\n".join(lines) + "\n}\n")
