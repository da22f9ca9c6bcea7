#!/usr/bin/env python3
"""Makes golden.json: what Hugging Face's own tokenizers core gives for small tokenizers of ours.

  python3 make_golden.py > golden.json      (needs the package tokenizers; the committed file is of 0.23.3)

Two vocabularies are trained by that core on the text below; the pipelines around them cover the components and flags
that models use. "vocab" is a base's pieces in the order of their ids, "added_tokens" get the ids after them.
"""
import json
import tokenizers
from tokenizers import Tokenizer, models, pre_tokenizers, trainers, normalizers

TEXT = """The kiln was lit before dawn, and by noon the whole courtyard smelled of clay and smoke. "We'll open it on
Thursday," said Mira, "or we won't open it at all." There were 48 bowls, 12 plates, and a jug that nobody had
ordered. It's 3.50 each; they're worth more. Der Töpfer prüft die Größe der Schüsseln; il n'a pas trouvé la théière.
def weigh(bowl, scale=1.0):\n    if bowl is None:\n        return 0\n    return bowl.mass * scale\n
陶工は朝から窯を焚いた。日本語の文字が並ぶ。陶艺家在黎明前点燃了窑炉。Гончар открыл печь в четверг. καὶ ὁ κεραμεύς. """

GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
          r"|\s+(?!\S)|\s+")

TEXTS = ["", " ", "The kiln was lit before dawn.", "  two  spaces   three ", "We'll see; THEY'LL see, it'ſ fine, I'M here",
         "12 345 6789 ½ ² Ⅷ ४२ 1,234,567.89", "tabs\tand\nlines\r\n\r\n  end \n", "\n\n\n", "trailing space ",
         "Größe prüft théière", "A\u0301 e\u0301 decomposed, \u00e9 composed \ufb01 \u212b", "İstanbul ΌΣΟΣ",
         "陶工は朝から窯を焚いた。", "陶艺家。在窑炉", "Гончар открыл", "emoji 👩\u200d🚀👍🏽 \U0001f468\u200d\U0001f469",
         "late \U0001fae8 \U0001f6dc \u2ffc \U00031350\U00031351 \U0001e030 end", "\u180e a\u180eb \u3000 x\u00a0y\u2003z",
         "<s>hi</s>", " <s> x </s>", "a<|im_start|>user\nhello<|im_end|>\n", "word keyword words word", "<A><B><A>",
         "x <L> y <R> z <LR>  w", "Norm NORM norm", "zero\x00byte \x7f", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
         "def f(x):\n\treturn x  # done", "!!!???...,,,", "-a,-b--c,,d-", "(paren) [brack] {brace} <0x41> \\n", "▁mark ▁▁two",
         "mixed日本English123語", "..a.b", "a b c", "the the the The", "x" * 70, "ab" * 60, "\u0301combining", "snow ☃ ❄",
         "0xDEADbeef ff", "foo_bar foo-bar ①② \u0939\u093f\u0928\u094d\u0926\u0940"]


def added(content, special=True, **flags):
    return {"content": content, "special": special, "single_word": False, "lstrip": False, "rstrip": False,
            "normalized": False, **flags}


def split(pattern, behavior="Isolated", invert=False, kind="Regex"):
    return {"type": "Split", "pattern": {kind: pattern}, "behavior": behavior, "invert": invert}


def byte_level(use_regex=True, add_prefix_space=False):
    return {"type": "ByteLevel", "add_prefix_space": add_prefix_space, "trim_offsets": True, "use_regex": use_regex}


def sequence(key, *parts):
    return {"type": "Sequence", key: list(parts)}


def pre(*parts):
    return sequence("pretokenizers", *parts)


CHATML = [added("<|im_start|>"), added("<|im_end|>"), added("<think>", special=False)]
SPM_TOKENS = [added("<unk>"), added("<s>"), added("</s>")]
PREPEND = {"type": "Prepend", "prepend": "▁"}
TO_MARK = {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}
FROM_MARK = {"type": "Replace", "pattern": {"String": "▁"}, "content": " "}
FALLBACK, FUSE = {"type": "ByteFallback"}, {"type": "Fuse"}
STRIP = {"type": "Strip", "content": " ", "start": 1, "stop": 0}
LLAMA_DECODER = sequence("decoders", FROM_MARK, FALLBACK, FUSE, STRIP)


def template(before, after=()):
    item = lambda t: {"SpecialToken": {"id": t, "type_id": 0}}
    return {"type": "TemplateProcessing", "single": [*map(item, before), {"Sequence": {"id": "A", "type_id": 0}},
            *map(item, after)], "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
            "special_tokens": [*before, *after]}


def bytes_overlay(pre_tokenizer, **more):
    return {"base": "bytes", "normalizer": None, "pre_tokenizer": pre_tokenizer, "post_processor": None,
            "decoder": byte_level(), "model": {}, "added_tokens": CHATML, **more}


def spm_overlay(**more):
    return {"base": "spm", "normalizer": sequence("normalizers", PREPEND, TO_MARK), "pre_tokenizer": None,
            "post_processor": template(["<s>"]), "decoder": LLAMA_DECODER, "added_tokens": SPM_TOKENS,
            "model": {"unk_token": "<unk>", "fuse_unk": True, "byte_fallback": True}, **more}


METASPACE = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first", "split": False}
OVERLAYS = {
    "gpt2": bytes_overlay(byte_level()),
    "gpt2-prefix": bytes_overlay(byte_level(add_prefix_space=True), post_processor=byte_level()),
    "digits": bytes_overlay(pre({"type": "Digits", "individual_digits": True}, byte_level())),
    "llama3": bytes_overlay(pre(split(LLAMA3), byte_level(False)), model={"ignore_merges": True},
                            post_processor=sequence("processors", byte_level(), template(["<|im_start|>"], ["<|im_end|>"]))),
    "nfc": bytes_overlay(pre(split(LLAMA3.replace("{1,3}", "")), byte_level(False)), normalizer={"type": "NFC"}),
    "nfkd-strip": bytes_overlay(byte_level(), normalizer=sequence("normalizers", {"type": "NFKD"},
                                {"type": "Strip", "strip_left": True, "strip_right": False})),
    "falcon": bytes_overlay(pre({"type": "Punctuation", "behavior": "Contiguous"}, byte_level(),
                            {"type": "Digits", "individual_digits": False}, split("[0-9][0-9][0-9]"))),
    "flags": bytes_overlay(byte_level(), normalizer={"type": "Lowercase"}, added_tokens=[
        added("<A>"), added("<A><B>"), added("<L>", lstrip=True), added("<R>", rstrip=True),
        added("<LR>", lstrip=True, rstrip=True), added("word", special=False, single_word=True),
        added("norm", special=False, normalized=True), added("\n", special=False), added("x", special=False, single_word=True)]),
    "oniguruma": bytes_overlay(pre(split(r"\w+(?=\b)|\h{2,3}+|[\s&&[^\n]]+|[^\w\s[.,]]|(?m:.)"), byte_level(False))),
    "word-borders": bytes_overlay(pre(split(r"\d{1,3}(?=(?:\d{3})*\b)"), split(r"^\s|\s$|\B\W{2}"), byte_level(False))),
    "properties": bytes_overlay(pre(split(r"\p{Han}+|\p{Hiragana}+|[\p{Greek}\p{Cyrillic}]+|\p{^L}\p{Nd}?|[^\P{Lu}]+|\p{So}"),
                                    byte_level(False))),
    "spm": spm_overlay(),
    "spm-metaspace": spm_overlay(normalizer=None, pre_tokenizer=METASPACE),
    "spm-metaspace-split": spm_overlay(normalizer=None, pre_tokenizer={**METASPACE, "prepend_scheme": "always", "split": True},
        decoder={**METASPACE, "prepend_scheme": "always", "split": True}, post_processor=template(["<s>"], ["</s>"])),
    "spm-gemma": spm_overlay(normalizer=TO_MARK, pre_tokenizer=split(" ", "MergedWithPrevious", kind="String"),
                             decoder=sequence("decoders", FROM_MARK, FALLBACK, FUSE)),
    "spm-unknown": spm_overlay(model={"unk_token": "<unk>", "fuse_unk": True, "byte_fallback": False}),
    "spm-unknown-apart": spm_overlay(model={"unk_token": "<unk>", "fuse_unk": False, "byte_fallback": False}, decoder=None),
    "spm-no-unknown": spm_overlay(model={"unk_token": None, "fuse_unk": False, "byte_fallback": False}),
    "spm-regex": spm_overlay(normalizer=sequence("normalizers", {"type": "NFKC"}, {"type": "Lowercase"},
        {"type": "Replace", "pattern": {"Regex": r"\s+"}, "content": "▁"}), decoder=sequence("decoders",
        {"type": "Replace", "pattern": {"Regex": "▁+"}, "content": " "}, FALLBACK, FUSE,
        {"type": "Strip", "content": " ", "start": 2, "stop": 0})),
    "spm-late-replace": spm_overlay(decoder=sequence("decoders", FALLBACK, FUSE, FROM_MARK, STRIP)),
}
for behavior in ["Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous"]:
    for invert in [False, True]:
        OVERLAYS[f"split-{behavior}{'-inverted' if invert else ''}"] = bytes_overlay(
            pre(split("[a-z]+" if invert else "[-,]", behavior, invert), byte_level(False)), added_tokens=[])


def train(name):
    tokenizer = Tokenizer(models.BPE())
    if name == "bytes":
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        trainer = trainers.BpeTrainer(vocab_size=420, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False)
    else:
        tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="never")
        trainer = trainers.BpeTrainer(vocab_size=560, show_progress=False, limit_alphabet=60,
            special_tokens=["<unk>", "<s>", "</s>"] + [f"<0x{b:02X}>" for b in range(256)])
    tokenizer.train_from_iterator([TEXT * 3], trainer)
    model = json.loads(tokenizer.to_str())["model"]
    vocab = sorted(model["vocab"], key=model["vocab"].get)
    return {"vocab": vocab, "merges": [m if isinstance(m, str) else " ".join(m) for m in model["merges"]]}


def compose(overlay, base):
    vocab = {piece: i for i, piece in enumerate(base["vocab"])}
    tokens, next_id = [], len(vocab)
    for token in overlay["added_tokens"]:
        token_id = vocab.get(token["content"])
        if token_id is None:
            token_id, next_id = next_id, next_id + 1
        tokens.append({"id": token_id, **token})
    ids = {t["content"]: t["id"] for t in tokens}

    def with_ids(processor):
        processor = dict(processor or {"type": None})
        if processor["type"] == "Sequence":
            processor["processors"] = [with_ids(p) for p in processor["processors"]]
        if processor["type"] == "TemplateProcessing":
            processor["special_tokens"] = {t: {"id": t, "ids": [ids[t]], "tokens": [t]} for t in processor["special_tokens"]}
        return processor if processor["type"] else None

    model = {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None, "end_of_word_suffix": None,
             "fuse_unk": False, "byte_fallback": False, "ignore_merges": False, **overlay["model"], "vocab": vocab,
             "merges": base["merges"]}
    return {"version": "1.0", "truncation": None, "padding": None, "added_tokens": tokens,
            "normalizer": overlay["normalizer"], "pre_tokenizer": overlay["pre_tokenizer"],
            "post_processor": with_ids(overlay["post_processor"]), "decoder": overlay["decoder"], "model": model}


bases = {name: train(name) for name in ["bytes", "spm"]}
expected = {}
for name, overlay in OVERLAYS.items():
    tokenizer = Tokenizer.from_str(json.dumps(compose(overlay, bases[overlay["base"]])))
    rows = []
    for text in TEXTS:
        ids = tokenizer.encode(text, add_special_tokens=False).ids
        full = tokenizer.encode(text, add_special_tokens=True).ids
        keep, skip = tokenizer.decode(ids, skip_special_tokens=False), tokenizer.decode(ids, skip_special_tokens=True)
        row = {"ids": ids, "decoded": keep}
        if full != ids:
            row["ids_with_special"] = full
        if skip != keep:
            row["decoded_skip_special"] = skip
        rows.append(row)
    expected[name] = rows


def lines(value):
    return "[\n" + ",\n".join(json.dumps(v, ensure_ascii=False) for v in value) + "]"


print('{"made_with": "tokenizers %s",' % tokenizers.__version__)
print('"bases": %s,' % json.dumps(bases, ensure_ascii=False))
print('"overlays": {\n%s},' % ",\n".join(f"{json.dumps(k)}: {json.dumps(v, ensure_ascii=False)}" for k, v in OVERLAYS.items()))
print('"texts": %s,' % json.dumps(TEXTS, ensure_ascii=False))
print('"expected": {\n%s}}' % ",\n".join(f"{json.dumps(k)}: {lines(v)}" for k, v in expected.items()))
