"""Makes tokenizer_golden.json: folders of tokenizers, and the ids that transformers gives texts.

  python tests/weights/formats/make_tokenizer_golden.py

Made with transformers 5.24.0.
"""

import itertools
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


def decoder(first: int, step: int = 1) -> dict[str, dict]:
    return {
        str(first + step * index): {
            name: getattr(token, name)
            for name in ("content", "lstrip", "normalized", "rstrip", "single_word", "special")
        }
        for index, token in enumerate(TOKENS)
    }


def folder(lines=LINES, added=None, special_map=None, **config) -> dict[str, object]:
    """Returns the files of a folder: text, or a value to write as JSON."""
    files = {"vocab.txt": "".join(f"{line}\n" for line in lines), "added_tokens.json": added}
    files["special_tokens_map.json"] = special_map
    files["tokenizer_config.json"] = config | {"tokenizer_class": "BertTokenizer"}
    return {name: content for name, content in files.items() if content}


def folders() -> dict[str, dict[str, object]]:
    """Returns the files of every folder."""
    size, words = len(LINES), LINES[5:]
    repeated = [*LINES, "the", "kubernetes"]
    blank = [*SPECIAL, "", *words[:9], "", *words[9:]]
    spaces = [*LINES, "", " ", "\t", "\u3000", "\u2003", "\x1c", "x "]
    added = {"[E1]": size, "[/E1]": size + 1, "Kube": size + 2}
    special = {"additional_special_tokens": ["[E1]", "[/E1]"]}
    york = {"__type": "AddedToken", "content": "New York", "single_word": True}
    forms = {
        "plain": folder(),
        "added_tokens.json": folder(added=added),
        "special_tokens_map.json": folder(
            added=added, special_map=special | {"bos_token": "Kube", "cls_token": "[CLS]"}
        ),
        "only named": folder(**special),
        "named with attributes": folder(extra_special_tokens=[york, "[E1]"]),
        "named in both files": folder(
            added={"[E1]": size, "[Z]": size + 1},
            special_map=special,
            additional_special_tokens=["[Z]"],
        ),
        "named twice": folder(
            extra_special_tokens=["[E1]"], additional_special_tokens=["New York"]
        ),
        "an empty list": folder(special_map=special, extra_special_tokens=[]),
        "extra in both files": folder(
            special_map={"extra_special_tokens": ["[E1]"]}, extra_special_tokens=["New York"]
        ),
        "decoder": folder(added_tokens_decoder=decoder(size)),
        "other ids": folder(added_tokens_decoder=decoder(size + 7, 3)),
        "in the vocabulary": folder([*LINES, "[E1]", "[/E1]"], added_tokens_decoder=decoder(size)),
        "repeated": folder(repeated),
        "repeated with added": folder(repeated, added_tokens_decoder=decoder(size)),
        "blank": folder(blank),
        "blank with added": folder(blank, added_tokens_decoder=decoder(len(blank) - 1)),
        "blank end with added": folder(
            [*LINES, "", ""], added={"[E1]": size + 1, "[/E1]": size + 2}
        ),
        "lines of spaces with added": folder(
            spaces, added={"[E1]": size + 2, "New York": size + 3}
        ),
        "spaces as tokens": folder(extra_special_tokens=["\u00a0", "  ", "[E1]", " a"]),
    }
    for lower, strips in itertools.product((True, False), repeat=2):
        forms[f"lower {lower}, strip {strips}"] = folder(
            do_lower_case=lower, strip_accents=strips, added_tokens_decoder=decoder(size)
        )
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
