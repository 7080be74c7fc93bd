"""Makes tokenizer_golden.json: folders of tokenizers, and the ids that transformers gives texts.

  python tests/weights/formats/make_tokenizer_golden.py

Made with transformers 5.24.0.
"""

import json
import pathlib
import tempfile

from transformers import AddedToken, AutoTokenizer

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
WORDS = "the kubernetes new york camel case camelcase e1 elan a b x E1 Camel The".split()
PIECES = "##case ##s ##a ##n ##es el ku ##ber ##net e ##lan n".split()
LINES = [*SPECIAL, *WORDS, *PIECES, *"[].,-#1é中国"]
TEXTS = [
    "The [E1] Kubernetes [/E1] runs",
    "kubernetes kuberneteses x-kubernetes, KUBERNETES",
    "CamelCase camelcase aCamelCaseb CamelCases",
    "New York new\tyork new  york newyork",
    "[e1] [E1][E1]a[E1]b [E10]",
    "élan ÉLAN e\u0301lan elan",
    "中国a 中 国 new中york",
    "  a\u00a0b\u200bx  ",
    "",
]
TOKENS = [
    AddedToken("[E1]", special=True),
    AddedToken("[/E1]", special=True),
    AddedToken("kubernetes"),
    AddedToken("CamelCase", normalized=False),
    AddedToken("New York"),
    AddedToken("élan", single_word=True),
    AddedToken("中国"),
]


def text_of(lines: list[str]) -> str:
    return "".join(f"{line}\n" for line in lines)


def decoder(first: int, step: int = 1) -> dict[str, dict]:
    return {
        str(first + step * index): {
            name: getattr(token, name)
            for name in ("content", "lstrip", "normalized", "rstrip", "single_word", "special")
        }
        for index, token in enumerate(TOKENS)
    }


def folders() -> dict[str, dict[str, object]]:
    """Returns the files of every folder: text, or a value to write as JSON."""
    size, words = len(LINES), LINES[5:]
    repeated = [*LINES, "the", "kubernetes"]
    blank = [*SPECIAL, "", *words[:9], "", *words[9:]]
    added = {"[E1]": size, "[/E1]": size + 1, "Kube": size + 2}
    special = {"additional_special_tokens": ["[E1]", "[/E1]"]}
    forms = {
        "plain": {"vocab.txt": text_of(LINES)},
        "added_tokens.json": {"vocab.txt": text_of(LINES), "added_tokens.json": added},
        "special_tokens_map.json": {
            "vocab.txt": text_of(LINES),
            "added_tokens.json": added,
            "special_tokens_map.json": special | {"bos_token": "Kube", "cls_token": "[CLS]"},
        },
        "only named": {"vocab.txt": text_of(LINES), "tokenizer_config.json": special},
        "named with attributes": {
            "vocab.txt": text_of(LINES),
            "tokenizer_config.json": {
                "extra_special_tokens": [
                    {"__type": "AddedToken", "content": "New York", "single_word": True},
                    "[E1]",
                ]
            },
        },
        "named in both files": {
            "vocab.txt": text_of(LINES),
            "added_tokens.json": {"[E1]": size, "[Z]": size + 1},
            "special_tokens_map.json": special,
            "tokenizer_config.json": {"additional_special_tokens": ["[Z]"]},
        },
        "named twice": {
            "vocab.txt": text_of(LINES),
            "tokenizer_config.json": {"extra_special_tokens": ["[E1]"]}
            | {"additional_special_tokens": ["New York"]},
        },
        "an empty list": {
            "vocab.txt": text_of(LINES),
            "special_tokens_map.json": special,
            "tokenizer_config.json": {"extra_special_tokens": []},
        },
        "extra in both files": {
            "vocab.txt": text_of(LINES),
            "special_tokens_map.json": {"extra_special_tokens": ["[E1]"]},
            "tokenizer_config.json": {"extra_special_tokens": ["New York"]},
        },
        "decoder": {
            "vocab.txt": text_of(LINES),
            "tokenizer_config.json": {"added_tokens_decoder": decoder(size)},
        },
        "other ids": {
            "vocab.txt": text_of(LINES),
            "tokenizer_config.json": {"added_tokens_decoder": decoder(size + 7, 3)},
        },
        "in the vocabulary": {
            "vocab.txt": text_of([*LINES, "[E1]", "[/E1]"]),
            "tokenizer_config.json": {"added_tokens_decoder": decoder(size)},
        },
        "repeated": {"vocab.txt": text_of(repeated)},
        "repeated with added": {
            "vocab.txt": text_of(repeated),
            "tokenizer_config.json": {"added_tokens_decoder": decoder(size)},
        },
        "blank": {"vocab.txt": text_of(blank)},
        "blank with added": {
            "vocab.txt": text_of(blank),
            "tokenizer_config.json": {"added_tokens_decoder": decoder(len(blank) - 1)},
        },
        "blank end with added": {
            "vocab.txt": text_of([*LINES, "", ""]),
            "added_tokens.json": {"[E1]": size + 1, "[/E1]": size + 2},
        },
        "lines of spaces with added": {
            "vocab.txt": text_of([*LINES, "", " ", "\t", "\u3000", "\u2003", "\x1c", "x "]),
            "added_tokens.json": {"[E1]": size + 2, "New York": size + 3},
        },
        "spaces as tokens": {
            "vocab.txt": text_of(LINES),
            "tokenizer_config.json": {"extra_special_tokens": ["\u00a0", "  ", "[E1]", " a"]},
        },
    }
    for lower in (True, False):
        for strips in (True, False):
            values = {"do_lower_case": lower, "strip_accents": strips}
            values["added_tokens_decoder"] = decoder(size)
            forms[f"lower {lower}, strip {strips}"] = {
                "vocab.txt": text_of(LINES),
                "tokenizer_config.json": values,
            }
    for values in forms.values():
        values.setdefault("tokenizer_config.json", {})
        values["tokenizer_config.json"]["tokenizer_class"] = "BertTokenizer"
    return forms


def golden_of(files: dict[str, object]) -> list[dict[str, object]]:
    """Returns the files with the ids of the texts, and so for what transformers makes of them."""
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        write(folder, files)
        tokenizer = AutoTokenizer.from_pretrained(folder)
        tokenizer.save_pretrained(saved := folder / "saved")
        again = AutoTokenizer.from_pretrained(saved)
        written = {file.name: json.loads(file.read_text("utf-8")) for file in saved.iterdir()}
    ids = [[x.encode(text, add_special_tokens=False) for text in TEXTS] for x in (tokenizer, again)]
    return [{"files": files, "ids": ids[0]}, {"files": written, "ids": ids[1]}]


def write(folder: pathlib.Path, files: dict[str, object]) -> None:
    for name, content in files.items():
        content = content if isinstance(content, str) else json.dumps(content)
        (folder / name).write_text(content, encoding="utf-8")


if __name__ == "__main__":
    golden = {"texts": TEXTS}
    for name, files in folders().items():
        golden[name], golden[f"{name}, saved again"] = golden_of(files)
    path = pathlib.Path(__file__).parent / "tokenizer_golden.json"
    lines = (f"{json.dumps(k)}: {json.dumps(v)}" for k, v in golden.items())
    path.write_text("{\n" + ",\n".join(lines) + "\n}\n")
