"""SmolLM2-135M-Instruct (GGUF, Q4_1) → `judge_trunk.onnx`, `judge_tail.onnx`, `tokenizer.json`.

The decoder is cut after layer K. The trunk (embedding and layers 0..K-1) is all that a margin needs: the verdict head reads
its last hidden state. The tail (layers K.., final norm, language-model head) is only loaded where traces are wanted, and
takes up where the trunk stops; no weight is stored twice.

    trunk: input_ids i64 [1,S], attention_mask i64 [1,P+S], past.{l}.k/v f32 [1,3,P,64]
           → hidden f32 [1,S,576], present.{l}.k/v f32 [1,3,P+S,64]          l = 0..K-1
    tail:  hidden f32 [1,S,576], attention_mask i64 [1,P+S], past.{l}.k/v    l = K..29
           → logits f32 [1,1,49152] of the last position, present.{l}.k/v

Linear weights are int8 in blocks of 32 along the input (MatMulNBits); activations stay float unless `ACCURACY_LEVEL` is 4.
GGUF files of the llama family store rotary pairs interleaved.
"""

import gguf
import numpy as np
from onnx_graph import FLOAT, INT32, INT64, Graph, save
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

LAYER_CUT = 20
ACCURACY_LEVEL = 4
POSITIONS_MAX = 8192
BLOCK = 32
CONTROL_TOKEN, USER_TOKEN = 3, 4  # token types in a GGUF vocabulary


class Checkpoint:
    """Read access to the shape and the weights of one llama-family GGUF file."""

    def __init__(self, path):
        reader = gguf.GGUFReader(str(path))
        self.fields = reader.fields
        self.tensors = {t.name: t for t in reader.tensors}
        if self.field("general.architecture") != "llama":
            raise SystemExit(f"{path}: not a llama-family GGUF")
        self.layers = self.field("llama.block_count")
        self.width = self.field("llama.embedding_length")
        self.heads = self.field("llama.attention.head_count")
        self.kv_heads = self.field("llama.attention.head_count_kv")
        self.head_width = self.width // self.heads
        self.epsilon = float(self.field("llama.attention.layer_norm_rms_epsilon"))
        self.rope_base = float(self.field("llama.rope.freq_base"))

    def field(self, name):
        return self.fields[name].contents()

    def weight(self, name):
        """Dequantised to float32; matrices are [out, in]."""
        tensor = self.tensors[name]
        return np.ascontiguousarray(gguf.dequantize(tensor.data, tensor.tensor_type).astype(np.float32))


def quantise(matrix):
    """Symmetric int8 blocks: returns codes u8 [N, K/32, 32] (128 stands for zero) and scales f32 [N·K/32]."""
    rows, columns = matrix.shape
    blocks = matrix.reshape(rows, columns // BLOCK, BLOCK)
    scale = np.abs(blocks).max(axis=2) / np.float32(127)
    scale[scale == 0] = np.float32(1e-8)
    codes = (np.round(blocks / scale[..., None]) + 128).astype(np.uint8)
    return codes, scale.astype(np.float32).reshape(-1)


class Decoder:
    """Appends decoder layers to a graph."""

    def __init__(self, checkpoint, graph, accuracy_level):
        self.checkpoint = checkpoint
        self.graph = graph
        self.accuracy_level = accuracy_level
        self.mask_inputs()
        self.rotary_tables()

    def mask_inputs(self):
        """GroupQueryAttention wants the index of the last valid position and the total length."""
        g = self.graph
        one = g.weight("one", np.array([1], np.int64))
        ones = g.op("ReduceSum", ["attention_mask", one], keepdims=0)
        self.last_index = g.op("Cast", [g.op("Sub", [ones, one])], to=INT32)
        axis = g.weight("axis_total", np.array(1, np.int64))
        self.total = g.op("Cast", [g.op("Gather", [g.op("Shape", ["attention_mask"]), axis], axis=0)], to=INT32)

    def rotary_tables(self):
        half = np.arange(0, self.checkpoint.head_width, 2) / self.checkpoint.head_width
        angles = np.outer(np.arange(POSITIONS_MAX), self.checkpoint.rope_base ** -half)
        self.graph.weight("rotary_cos", np.cos(angles).astype(np.float32))
        self.graph.weight("rotary_sin", np.sin(angles).astype(np.float32))

    def linear(self, x, name):
        codes, scale = quantise(self.checkpoint.weight(f"{name}.weight"))
        weights = [self.graph.weight(f"{name}.codes", codes), self.graph.weight(f"{name}.scale", scale)]
        return self.graph.op(
            "MatMulNBits",
            [x, *weights],
            domain="com.microsoft",
            K=codes.shape[1] * BLOCK,
            N=codes.shape[0],
            bits=8,
            block_size=BLOCK,
            accuracy_level=self.accuracy_level,
        )

    def norm(self, x, name):
        weight = self.graph.weight(name, self.checkpoint.weight(f"{name}.weight").reshape(-1))
        return self.graph.op(
            "SimplifiedLayerNormalization", [x, weight], axis=-1, epsilon=self.checkpoint.epsilon, stash_type=1
        )

    def layer(self, x, number):
        g, c = self.graph, self.checkpoint
        block = f"blk.{number}"
        h = self.norm(x, f"{block}.attn_norm")
        q, k, v = (self.linear(h, f"{block}.attn_{part}") for part in "qkv")
        past = [f"past.{number}.k", f"past.{number}.v"]
        attended, _, _ = g.op(
            "GroupQueryAttention",
            [q, k, v, *past, self.last_index, self.total, "rotary_cos", "rotary_sin"],
            [f"attended.{number}", f"present.{number}.k", f"present.{number}.v"],
            domain="com.microsoft",
            num_heads=c.heads,
            kv_num_heads=c.kv_heads,
            do_rotary=1,
            rotary_interleaved=1,
            scale=c.head_width**-0.5,
        )
        x = g.op("Add", [x, self.linear(attended, f"{block}.attn_output")])
        h = self.norm(x, f"{block}.ffn_norm")
        gate = self.linear(h, f"{block}.ffn_gate")
        gated = g.op("Mul", [g.op("Mul", [gate, g.op("Sigmoid", [gate])]), self.linear(h, f"{block}.ffn_up")])
        return g.op("Add", [x, self.linear(gated, f"{block}.ffn_down")])

    def cache_signature(self, kind, length, layers):
        c = self.checkpoint
        return [(f"{kind}.{n}.{part}", FLOAT, [1, c.kv_heads, length, c.head_width]) for n in layers for part in "kv"]


def embed(checkpoint, graph):
    table = graph.weight("embedding", checkpoint.weight("token_embd.weight").astype(np.float16))
    return graph.op("Cast", [graph.op("Gather", [table, "input_ids"])], to=FLOAT)


def build_trunk(checkpoint, cut=LAYER_CUT, accuracy_level=ACCURACY_LEVEL, taps=()):
    """`taps` adds outputs `hidden_{n}`, the state after n layers: for choosing the cut, never shipped."""
    g = Graph("judge_trunk")
    decoder = Decoder(checkpoint, g, accuracy_level)
    x = embed(checkpoint, g)
    for n in range(cut):
        x = decoder.layer(x, n)
        if n + 1 in taps:
            g.op("Identity", [x], [f"hidden_{n + 1}"])
    g.op("Identity", [x], ["hidden"])
    inputs = [("input_ids", INT64, [1, "S"]), ("attention_mask", INT64, [1, "T"])]
    outputs = [("hidden", FLOAT, [1, "S", checkpoint.width])]
    outputs += [(f"hidden_{n}", FLOAT, [1, "S", checkpoint.width]) for n in taps]
    inputs += decoder.cache_signature("past", "P", range(cut))
    return g.model(inputs, outputs + decoder.cache_signature("present", "T", range(cut)))


def build_tail(checkpoint, cut=LAYER_CUT, accuracy_level=ACCURACY_LEVEL):
    g = Graph("judge_tail")
    decoder = Decoder(checkpoint, g, accuracy_level)
    layers = range(cut, checkpoint.layers)
    x = "hidden"
    for n in layers:
        x = decoder.layer(x, n)
    # Only the last position is ever sampled from; the 49k-row head over a whole prompt would cost more than the layers.
    last = [g.weight(f"slice_{n}", np.array([v], np.int64)) for n, v in (("from", -1), ("to", 2**31 - 1), ("axis", 1))]
    x = decoder.norm(g.op("Slice", [x, *last]), "output_norm")
    # The head is tied to the embedding; here it is int8, the trunk's copy for look-up is float16.
    logits = decoder.linear(x, "token_embd")
    g.op("Identity", [logits], ["logits"])
    vocabulary = checkpoint.weight("token_embd.weight").shape[0]
    inputs = [("hidden", FLOAT, [1, "S", checkpoint.width]), ("attention_mask", INT64, [1, "T"])]
    inputs += decoder.cache_signature("past", "P", layers)
    outputs = [("logits", FLOAT, [1, 1, vocabulary])] + decoder.cache_signature("present", "T", layers)
    return g.model(inputs, outputs)


def build_tokenizer(checkpoint):
    """Byte-level BPE with single digits, as the GGUF metadata describes it."""
    pieces = checkpoint.field("tokenizer.ggml.tokens")
    merges = [tuple(m.split(" ", 1)) for m in checkpoint.field("tokenizer.ggml.merges")]
    kinds = checkpoint.field("tokenizer.ggml.token_type")
    if checkpoint.field("tokenizer.ggml.pre") != "smollm":
        raise SystemExit("unknown pre-tokeniser in the GGUF")
    tokenizer = Tokenizer(models.BPE(vocab={p: i for i, p in enumerate(pieces)}, merges=merges))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    special = [p for p, kind in zip(pieces, kinds) if kind in (CONTROL_TOKEN, USER_TOKEN)]
    tokenizer.add_special_tokens([AddedToken(p, special=True, normalized=False) for p in special])
    return tokenizer


def convert(source, out):
    """Writes the three files and returns their names."""
    checkpoint = Checkpoint(source)
    save(build_trunk(checkpoint), out / "judge_trunk.onnx")
    save(build_tail(checkpoint), out / "judge_tail.onnx")
    (out / "tokenizer.json").write_text(build_tokenizer(checkpoint).to_str(pretty=False), encoding="utf-8")
    return ["judge_trunk.onnx", "judge_tail.onnx", "tokenizer.json"]
