"""Reference values for the replicas' other precisions, and for image preprocessing, from Python's own tools:
transformers' processors (Pillow 12, which resizes rows first) and onnxruntime. Nothing here is shared with the library.

Usage: python vlm_reference.py (writes vlm_variants.json and vlm_pixels.json beside the replicas)
Needs numpy, pillow==12.0.0, onnxruntime==1.31.1, tokenizers, torch and transformers==4.57.6.
"""

import json
import pathlib

import numpy as np
import onnxruntime as ort
import PIL
from PIL import Image
from transformers import AutoTokenizer, CLIPImageProcessor, Idefics3ImageProcessor, Qwen2VLImageProcessor
from transformers import SiglipImageProcessor

HERE = pathlib.Path(__file__).resolve().parent.parent / "data" / "replicas"
SMOL = HERE / "tiny-smolvlm"
VARIANTS = {
    "fp32": ("", "onnx", ""),
    "fp16": ("", "onnx", "_fp16"),
    "q4": ("_q4", "onnx", "_q4"),
    "fused": ("", "onnx_fused", ""),
    "int8": ("_int8", "onnx", "_int8"),
}
CASES = {"landscape_split": True, "portrait_split": True, "nosplit": False}
STEPS = 24


def session(path):
    options = ort.SessionOptions()
    options.intra_op_num_threads = 2
    return ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def prompt_ids(tokenizer, rows, columns, tokens):
    """Idefics3's expansion of the image mark, written from its published layout."""
    fake, image = "<fake_token_around_image>", "<image>" * tokens
    tiles = "".join(
        "".join(f"{fake}<row_{r}_col_{c}>{image}" for c in range(1, columns + 1)) + "\n" for r in range(1, rows + 1)
    )
    picture = (tiles + "\n" if rows else "") + f"{fake}<global-img>{image}{fake}"
    text = (
        "<|im_start|>System: Rule 1: never place a heat source next to flammable material.<end_of_utterance>\n"
        f"User:{picture}Instruction: move the towel onto the stove top. Answer yes or no.<end_of_utterance>\nAssistant:"
    )
    return tokenizer(text, add_special_tokens=False).input_ids


def smol_variant(vision_suffix, folder, decoder_suffix):
    vision = session(SMOL / "onnx" / f"vision_encoder{vision_suffix}.onnx")
    embed = session(SMOL / "onnx" / "embed_tokens.onnx")
    decoder = session(SMOL / folder / f"decoder_model_merged{decoder_suffix}.onnx")
    processor = Idefics3ImageProcessor.from_pretrained(SMOL)
    tokenizer = AutoTokenizer.from_pretrained(SMOL)
    image_id = tokenizer.convert_tokens_to_ids("<image>")
    inputs = {i.name: i for i in decoder.get_inputs()}
    # 4-bit kernels round activations to 8 bits: a difference in the last bit of what comes before, such as another batch
    # leaves, is carried over a rounding edge. Their reference reads in the library's portions.
    rounds = decoder_suffix == "_q4"
    kind = np.float16 if inputs["past_key_values.0.key"].type == "tensor(float16)" else np.float32
    past_names = [n for n in inputs if n.startswith("past")]
    outputs = ["logits"] + [n.replace("past_key_values", "present") for n in past_names]

    def step(rows, mask, start, past):
        feed = {"inputs_embeds": rows, "attention_mask": np.ones((1, mask), np.int64), **dict(zip(past_names, past))}
        if "position_ids" in inputs:
            feed["position_ids"] = np.arange(start, start + rows.shape[1])[None]
        if "num_logits_to_keep" in inputs:
            feed["num_logits_to_keep"] = np.array(1)
        answer = decoder.run(outputs, feed)
        return answer[0][0, -1].astype(np.float32), answer[1:]

    result = {}
    for name, split in CASES.items():
        picture = Image.open(SMOL / f"{name}.png")
        seen = processor(images=[[picture]], return_tensors="np", do_image_splitting=split, return_row_col_info=True)
        pixels = seen["pixel_values"].astype(np.float32)
        masks = seen["pixel_attention_mask"].astype(bool)
        see = lambda some: vision.run(
            ["image_features"], {"pixel_values": pixels[:, some], "pixel_attention_mask": masks[:, some]}
        )[0]
        tiles = range(pixels.shape[1])
        features = np.concatenate([see([tile]) for tile in tiles]) if rounds else see(list(tiles))
        rows, columns = seen["rows"][0][0], seen["cols"][0][0]
        ids = np.array([prompt_ids(tokenizer, rows, columns, features.reshape(-1, 64).shape[0] // pixels.shape[1])])
        embedded = embed.run(None, {"input_ids": ids})[0]
        embedded[ids == image_id] = features.reshape(-1, embedded.shape[-1])
        length = ids.shape[1]
        empty = [np.zeros((1, 2, 0, 16), kind)] * len(past_names)
        past, border = empty, 0
        while border < length:
            end = min(border + 128, length) if rounds else length
            first, past = step(embedded[:, border:end], end, border, past)
            border = end
        row, greedy = first, []
        for index in range(STEPS):
            token = int(row.argmax())
            greedy.append(token)
            if token == tokenizer.eos_token_id:
                break
            one = embed.run(None, {"input_ids": np.array([[token]])})[0]
            row, past = step(one, length + index + 1, length + index, past)
        log_p = first.astype(np.float64) - np.log(np.exp(first.astype(np.float64)).sum())
        yes, no = (tokenizer(word, add_special_tokens=False).input_ids for word in (" yes", " no"))
        result[name] = {
            "image": f"{name}.png",
            "do_image_splitting": split,
            "input_ids": ids[0].tolist(),
            "last_logits": [round(float(value), 6) for value in first],
            "greedy": greedy,
            "yes_ids": yes,
            "no_ids": no,
            "log_p_yes": float(log_p[yes[0]]),
            "log_p_no": float(log_p[no[0]]),
        }
    return result


def pattern(width, height):
    """The picture the pixels are compared on; the tests draw the same."""
    y, x = np.mgrid[0:height, 0:width]
    ramp = np.stack([x * 255 // max(width - 1, 1), y * 255 // max(height - 1, 1), (x * 7 + y * 13) % 256], -1)
    ramp[(x // 9 + y // 7) % 5 == 0] = (250, 4, 130)
    return Image.fromarray(ramp.astype(np.uint8))


def pixels():
    half = {"image_mean": [0.5] * 3, "image_std": [0.5] * 3}
    clip = {"image_mean": [0.48145466, 0.4578275, 0.40821073], "image_std": [0.26862954, 0.26130258, 0.27577711]}
    idefics = {"size": {"longest_edge": 768}, "max_image_size": {"longest_edge": 256}, "resample": 1, **half}
    qwen2 = {"patch_size": 14, "temporal_patch_size": 2, "merge_size": 2, "min_pixels": 3136, "max_pixels": 401408,
             "resample": 3, **clip}
    qwen3 = {**qwen2, **half, "patch_size": 16, "min_pixels": 65536, "max_pixels": 262144}
    square = {"size": {"height": 378, "width": 378}, "resample": 3, **half}
    crop = {"size": {"shortest_edge": 336}, "crop_size": {"height": 336, "width": 336}, "resample": 3, **clip}
    families = {
        "idefics": (Idefics3ImageProcessor, idefics, [(640, 480), (333, 1000)]),
        "qwen2": (Qwen2VLImageProcessor, qwen2, [(640, 480), (720, 720), (1280, 300), (20, 30)]),
        "qwen3": (Qwen2VLImageProcessor, qwen3, [(640, 480), (720, 720), (57, 91)]),
        "siglip": (SiglipImageProcessor, square, [(640, 480), (200, 411)]),
        "clip": (CLIPImageProcessor, crop, [(640, 480), (411, 300), (200, 611)]),
    }
    cases = []
    for family, (processor, settings, sizes) in families.items():
        for width, height in sizes:
            picture = pattern(width, height)
            images = [[picture]] if family == "idefics" else [picture]
            made = processor(**settings)(images=images, return_tensors="np")
            values = made["pixel_values"].astype(np.float64).ravel()
            step = values.size // 400
            cases.append({
                "family": family,
                "settings": settings,
                "width": width,
                "height": height,
                "shape": list(made["pixel_values"].shape),
                "grid": made["image_grid_thw"][0].tolist() if "image_grid_thw" in made else None,
                "sum": float(values.sum()),
                "step": step,
                "values": [round(float(value), 6) for value in values[::step]],
            })
    return {"made_by": f"transformers' processors on Pillow {PIL.__version__}", "cases": cases}


def main():
    assert PIL.__version__.startswith("12."), "Pillow 13 resizes columns first for some shapes"
    variants = {name: smol_variant(*files) for name, files in VARIANTS.items()}
    golden = json.loads((SMOL / "golden.json").read_text())
    for name, case in golden.items():
        apart = np.abs(np.array(case["last_logits"]) - np.array(variants["fp32"][name]["last_logits"])).max()
        print(name, "against transformers' own model:", apart, case["input_ids"] == variants["fp32"][name]["input_ids"])
    (HERE / "vlm_variants.json").write_text(json.dumps(variants, separators=(",", ":")) + "\n")
    (HERE / "vlm_pixels.json").write_text(json.dumps(pixels(), separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
