"""Writes tokenizer-cases.json: random texts with ids from the Hugging Face tokenizers library.

Usage: make_tokenizer_cases.py NANO_TOKENIZER_JSON QWEN35_VOCAB_GGUF > tokenizer-cases.json
Needs: pip install tokenizers gguf. Made with tokenizers 0.23.3 (Unicode 16.0).
"""

import copy
import json
import random
import sys

from gguf import GGUFReader
from tokenizers import Tokenizer

QWEN2 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
SPIKY = (
    "  \t\n\r\x0b\x85\xa0\u2028\u3000''sStTrReEvVmMlLdD\u017f\u212axyz09²Ⅷ٣.,!?+=(){}<>|_\u0301\u094d"
    "\u20dd\ufe0f\u200d\u00ad\ufeffé中文カ한국ру\u0e01\u0e34😀👩🏽\x00\x1b\u0378\U000323af"
)
WORDS = (
    "def return self import for in range print the of and to don't I'LL you're 3.14 x_1 == != -> "
    "// \r\n \n\n    naïve straße Ελλάδα привет мир 你好 世界 日本語 テスト 한국어 नमस्ते ไทย שלום مرحبا "
    "👩‍👩‍👧 🇩🇪 e\u0301 <|im_start|> <|im_end|> <think> </think> <tool_call> <|endoftext|> <|im_ <think"
).split(" ")


def text(rng):
    kind = rng.randrange(4)
    if kind == 0:
        return "".join(rng.choice(SPIKY) for _ in range(rng.randrange(1, 40)))
    if kind == 1:
        out = []
        while len(out) < rng.randrange(1, 24):
            c = rng.randrange(0x110000 if rng.random() < 0.5 else 0x3000)
            if not 0xD800 <= c < 0xE000:
                out.append(chr(c))
        return "".join(out)
    joint = ["", " ", "  ", "\n", "\t"]
    out = "".join(rng.choice(WORDS) + rng.choice(joint) for _ in range(rng.randrange(1, 24)))
    if kind == 3:
        out = "".join(c if rng.random() < 0.9 else rng.choice(SPIKY) for c in out)
    return out


def cases(spec, rng, count):
    plain = copy.deepcopy(spec)
    plain["added_tokens"] = []
    parse = Tokenizer.from_str(json.dumps(spec))
    ignore = Tokenizer.from_str(json.dumps(plain))
    for _ in range(count):
        t = text(rng)
        yield {"text": t, "ids": parse.encode(t).ids, "ids_no_special": ignore.encode(t).ids}


def main():
    nano = json.load(open(sys.argv[1]))
    fields = GGUFReader(sys.argv[2]).fields
    tokens = fields["tokenizer.ggml.tokens"].contents()
    types = fields["tokenizer.ggml.token_type"].contents()
    large = copy.deepcopy(nano)
    large["model"]["vocab"] = {t: i for i, t in enumerate(tokens) if types[i] == 1}
    large["model"]["merges"] = [m.split(" ") for m in fields["tokenizer.ggml.merges"].contents()]
    flags = dict.fromkeys(["single_word", "lstrip", "rstrip", "normalized"], False)
    large["added_tokens"] = [
        {"id": i, "content": t, "special": types[i] == 3, **flags}
        for i, t in enumerate(tokens)
        if types[i] in (3, 4)
    ]
    older = copy.deepcopy(nano)
    older["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"] = QWEN2
    rng = random.Random(35)
    out = {
        "nano": list(cases(nano, rng, 250)),
        "nano-with-qwen2": list(cases(older, rng, 150)),
        "qwen35": list(cases(large, rng, 250)),
    }
    print("{")
    for n, (name, rows) in enumerate(out.items()):
        print(f"{json.dumps(name)}: [")
        print(",\n".join(json.dumps(row, separators=(",", ":")) for row in rows))
        print("]," if n + 1 < len(out) else "]")
    print("}")


main()
