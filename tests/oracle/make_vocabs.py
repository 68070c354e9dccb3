"""Makes tests/oracle/vocabs: small vocabularies, one per pre-tokenizer, and the ids that the libraries models are made
with give for thousands of generated texts: PyPI's tokenizers for byte-level BPE, sentencepiece for the other.

usage: python tests/oracle/make_vocabs.py [LLAMA-TOKENIZE SMOLLM2.gguf]
       (in a virtual environment with tests/oracle/requirements-vocabs.txt)

texts.json holds the texts, NAME.gguf a vocabulary and NAME.json the same as a tokenizer.json, where there is one,
NAME.ids one line per text: two base64 digits per id. With the two arguments, smollm2.ids is made as well: llama-tokenize's ids, three digits each, of the texts one after another.
"""

import io
import json
import pathlib
import subprocess
import sys
import tempfile

import gguf
import sentencepiece
from tokenizers import AddedToken, Regex, Tokenizer, models, normalizers, pre_tokenizers, processors, trainers

import vocab_texts

HERE = pathlib.Path(__file__).parent / "vocabs"
N_TEXTS = 3000
DIGITS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"

GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|"
          r"\s*[\r\n]+|\s+(?!\S)|\s+")


def split(pattern):
    return pre_tokenizers.Split(Regex(pattern), "isolated")


QWEN2 = LLAMA3.replace("{1,3}", "")
PLAIN_BYTES = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
GPT2_BYTES = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)

# Name: tokenizer.ggml.pre; how the model's tokenizer.json says it (llama.cpp's own words for default, which has none).
PRE_TOKENIZERS = {
    "gpt-2": GPT2_BYTES,
    "default": pre_tokenizers.Sequence([split(r"[\p{P}$+<=>^~|]+"), split(GPT2), split(r"\p{N}+"),
                                        split("[0-9][0-9][0-9]"), PLAIN_BYTES]),
    "smollm": pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), GPT2_BYTES]),
    "qwen2": pre_tokenizers.Sequence([split(QWEN2), PLAIN_BYTES]),
    "llama-bpe": pre_tokenizers.Sequence([split(LLAMA3), PLAIN_BYTES]),
}
PRE_TOKENIZERS["falcon"] = pre_tokenizers.Sequence(
    [pre_tokenizers.Punctuation("contiguous"), GPT2_BYTES, pre_tokenizers.Digits(individual_digits=False),
     split("[0-9][0-9][0-9]")])
# Where SentencePiece's vocabularies get their space in front, by name: (normalizer, pre-tokenizer).
SPACES = {
    "spm-first": (None, pre_tokenizers.Metaspace("\u2581", prepend_scheme="first", split=False)),
    "spm-gemma": (normalizers.Replace(" ", "\u2581"), pre_tokenizers.Split(" ", "merged_with_previous")),
}
CONTROL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
USER_DEFINED = ["<tool>", "<tool_call>", "\t\t\t\t"]


def digits(ids, n):
    return "".join(DIGITS[i >> 6 * k & 63] for i in ids for k in reversed(range(n)))


def write_ids(name, lines):
    (HERE / f"{name}.ids").write_text("".join(line + "\n" for line in lines), encoding="ascii")


def write_vocab(name, model, pre, tokens, types, merges=None, scores=None, bos=0, eos=0):
    w = gguf.GGUFWriter(str(HERE / f"{name}.gguf"), "llama")
    w.add_tokenizer_model(model)
    w.add_tokenizer_pre(pre)
    w.add_token_list(tokens)
    w.add_token_types(types)
    if merges is not None:
        w.add_token_merges(merges)
    if scores is not None:
        w.add_token_scores(scores)
    w.add_bos_token_id(bos)
    w.add_eos_token_id(eos)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.close()


def make_bpe(name, pre_tokenizer, corpus, texts):
    t = Tokenizer(models.BPE(ignore_merges=name == "llama-bpe"))
    t.pre_tokenizer = pre_tokenizer
    t.train_from_iterator(corpus, trainers.BpeTrainer(
        vocab_size=1100, special_tokens=CONTROL, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False))
    t.add_tokens([AddedToken(text, normalized=False) for text in USER_DEFINED])
    spec = json.loads(t.to_str())["model"]
    if name == "llama-bpe":  # without its merge, "Hello" is still a token, because words are looked up first
        spec["merges"] = [m for m in spec["merges"] if "".join(m) != "Hello"]
        t.model = models.BPE(spec["vocab"], [tuple(m) for m in spec["merges"]], ignore_merges=True)
        assert len(t.encode("Hello").ids) == 1
    vocab = t.get_vocab(with_added_tokens=True)
    tokens = sorted(vocab, key=vocab.get)
    types = [gguf.TokenType.CONTROL if x in CONTROL else
             gguf.TokenType.USER_DEFINED if x in USER_DEFINED else gguf.TokenType.NORMAL for x in tokens]
    write_vocab(name, "gpt2", name, tokens, types, merges=[" ".join(m) for m in spec["merges"]], eos=2)
    write_ids(name, (digits(e.ids, 2) for e in t.encode_batch(texts, add_special_tokens=False)))
    if name == "qwen2":
        t.normalizer = normalizers.NFC()  # as Qwen's has it; the ids above are without
    if name == "llama-bpe":
        bos = processors.TemplateProcessing(single="<|endoftext|> $A", special_tokens=[("<|endoftext|>", 0)])
        t.post_processor = processors.Sequence([processors.ByteLevel(trim_offsets=False), bos])
    if name != "default":
        write_json(name, t)


def write_json(name, tokenizer):
    (HERE / f"{name}.json").write_text(tokenizer.to_str(), encoding="utf-8", newline="")


def spm_merges(sp):
    """Every way to make a piece of two others, best scores first, as transformers writes them."""
    ids = {sp.id_to_piece(i): i for i in range(sp.get_piece_size())}
    pairs = [(piece[:at], piece[at:]) for piece in ids for at in range(1, len(piece))]
    pairs = [(a, b) for a, b in pairs if a in ids and b in ids]
    return ids, sorted(pairs, key=lambda p: (-sp.get_score(ids[p[0] + p[1]]), ids[p[0]], ids[p[1]]))


def make_spm(name, corpus, texts):
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(corpus), model_writer=model, model_type="bpe", vocab_size=1200, byte_fallback=True,
        normalization_rule_name="identity", remove_extra_whitespaces=False, allow_whitespace_only_pieces=True,
        split_digits=True, character_coverage=0.99, num_threads=1, minloglevel=2)
    sp = sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())
    ids = range(sp.get_piece_size())
    types = [gguf.TokenType.UNKNOWN if sp.is_unknown(i) else gguf.TokenType.CONTROL if sp.is_control(i) else
             gguf.TokenType.BYTE if sp.is_byte(i) else gguf.TokenType.NORMAL for i in ids]
    write_vocab(name, "llama", "default", [sp.id_to_piece(i) for i in ids], types,
                scores=[sp.get_score(i) for i in ids], bos=1, eos=2)
    write_ids(name, (digits(line, 2) for line in sp.encode(texts)))
    vocabulary, merges = spm_merges(sp)
    t = Tokenizer(models.BPE(vocabulary, merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    t.normalizer = normalizers.Sequence([normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")])
    t.add_special_tokens([AddedToken(x, normalized=False, special=True) for x in ("<unk>", "<s>", "</s>")])
    t.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    write_json(name, t)
    t.add_special_tokens([AddedToken("<|im_start|>", normalized=False, special=True, lstrip=True),
                          AddedToken("<|im_end|>", normalized=False, special=True, rstrip=True)])
    for variant, (t.normalizer, t.pre_tokenizer) in SPACES.items():
        write_json(variant, t)
        write_ids(variant, (digits(e.ids, 2) for e in t.encode_batch(texts, add_special_tokens=False)))


def make_smollm2(llama_tokenize, model, texts):
    with tempfile.NamedTemporaryFile("w", encoding="utf-8", newline="") as f:
        f.write("".join(texts))
        f.flush()
        out = subprocess.run([llama_tokenize, "-m", model, "-f", f.name, "--ids", "--no-bos", "--no-escape",
                              "--no-parse-special", "--log-disable"], capture_output=True, check=True, text=True).stdout
    write_ids("smollm2", [digits(json.loads(out), 3)])


def main():
    HERE.mkdir(exist_ok=True)
    corpus = vocab_texts.corpus()
    texts = vocab_texts.texts(N_TEXTS, CONTROL + USER_DEFINED)
    (HERE / "texts.json").write_text("[\n" + ",\n".join(json.dumps(t, ensure_ascii=False) for t in texts) + "\n]\n",
                                     encoding="utf-8", newline="")
    for name, pre_tokenizer in PRE_TOKENIZERS.items():
        make_bpe(name, pre_tokenizer, corpus, texts)
    make_spm("spm", corpus, texts)
    if len(sys.argv) == 3:
        make_smollm2(sys.argv[1], sys.argv[2], texts)


main()
