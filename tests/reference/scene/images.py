"""Makes the small pictures the decoder is tried on, and what Pillow sees in those it should accept: upright, RGB, every
fifth pixel. Usage: python images.py (writes images/ and images.json beside it)."""

import io
import json
import pathlib
import struct
import zlib

import numpy as np
import PIL
from PIL import Image, ImageOps

from pattern import pattern

HERE = pathlib.Path(__file__).parent
STEP = 5


def chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png(width, height, bits, colour, rows, interlace=0):
    header = struct.pack(">IIBBBBB", width, height, bits, colour, 0, 0, interlace)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


def saved(image, kind, **options):
    stream = io.BytesIO()
    image.save(stream, kind, **options)
    return stream.getvalue()


def without_huffman_tables(data):
    """A motion-JPEG frame as USB cameras send it."""
    out, at = data[:2], 2
    while data[at + 1] != 0xDA:
        end = at + 2 + int.from_bytes(data[at + 2 : at + 4], "big")
        if data[at + 1] != 0xC4:
            out += data[at:end]
        at = end
    return out + data[at:]


def interlaced(pixels):
    """Adam7: seven passes, each row with filter byte 0."""
    passes = [(0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2)]
    rows = b""
    for x, y, dx, dy in passes:
        part = pixels[y::dy, x::dx]
        if part.size:
            rows += b"".join(b"\0" + row.tobytes() for row in part)
    return png(pixels.shape[1], pixels.shape[0], 8, 2, rows, interlace=1)


def accepted():
    # Blocks of one colour and gentle slopes: the decoders' chroma interpolation may differ, what is seen may not.
    y, x = np.mgrid[0:40, 0:56]
    soft = np.stack([40 + 3 * x, 220 - 4 * y, 60 + x + 2 * y], axis=2).astype(np.uint8)
    photo = Image.fromarray(soft, "RGB")
    sharp = Image.fromarray(pattern(56, 40), "RGB")
    files = {}
    for orientation in range(1, 9):
        exif = Image.Exif()
        exif[0x0112] = orientation
        files[f"orientation_{orientation}.jpg"] = saved(photo, "JPEG", quality=90, exif=exif)
    files["orientation_6.png"] = saved(sharp, "PNG", exif=exif_of(6))
    files["orientation_none.jpg"] = saved(photo, "JPEG", quality=90, exif=exif_of(0))
    files["progressive.jpg"] = saved(sharp, "JPEG", quality=75, progressive=True, subsampling=0)
    files["progressive_420.jpg"] = saved(photo, "JPEG", quality=95, progressive=True, subsampling=2)
    files["baseline_444.jpg"] = saved(sharp, "JPEG", quality=85, subsampling=0)
    files["baseline_422.jpg"] = saved(photo, "JPEG", quality=85, subsampling=1)
    files["optimised_420.jpg"] = saved(photo, "JPEG", quality=85, subsampling=2, optimize=True)
    files["restart.jpg"] = saved(photo, "JPEG", quality=85, restart_marker_blocks=2)
    files["restart_progressive.jpg"] = saved(photo, "JPEG", quality=85, progressive=True, restart_marker_rows=1)
    files["rgb.jpg"] = saved(photo, "JPEG", quality=90, keep_rgb=True)
    files["grey.jpg"] = saved(photo.convert("L"), "JPEG", quality=90)
    files["grey_progressive.jpg"] = saved(photo.convert("L"), "JPEG", quality=90, progressive=True)
    files["one_pixel.jpg"] = saved(photo.crop((0, 0, 1, 1)), "JPEG")
    files["padded.jpg"] = files["baseline_444.jpg"] + bytes(300)
    files["motion_frame.jpg"] = without_huffman_tables(files["baseline_422.jpg"])
    files["rgb.png"] = saved(sharp, "PNG")
    files["grey.png"] = saved(sharp.convert("L"), "PNG")
    files["one_bit.png"] = saved(sharp.convert("1"), "PNG")
    files["palette.png"] = saved(sharp.convert("P"), "PNG")
    files["opaque_alpha.png"] = saved(sharp.convert("RGBA"), "PNG")
    files["interlaced.png"] = interlaced(pattern(21, 13))
    return files


def exif_of(orientation):
    exif = Image.Exif()
    exif[0x0112] = orientation
    return exif


def refused():
    image = Image.fromarray(pattern(24, 16), "RGB")
    clear = np.dstack([pattern(24, 16), np.full((16, 24), 255, np.uint8)])
    clear[3:6, 2:9, 3] = 0
    depth = (np.arange(24 * 16, dtype=">u2").reshape(16, 24) * 10)
    rows16 = b"".join(b"\0" + row.tobytes() for row in depth)
    deep = np.repeat(depth[:, :, None], 3, axis=2)
    rows48 = b"".join(b"\0" + row.tobytes() for row in deep)
    ycck = bytearray(saved(image.convert("CMYK"), "JPEG"))
    adobe = ycck.index(b"Adobe")
    ycck[adobe + 11] = 2
    frames = [image, ImageOps.mirror(image)]
    two_clear = image.quantize(4)
    return {
        "cmyk.jpg": saved(image.convert("CMYK"), "JPEG"),
        "ycck.jpg": bytes(ycck),
        "depth_16.png": png(24, 16, 16, 0, rows16),
        "rgb_16.png": png(24, 16, 16, 2, rows48),
        "hidden_alpha.png": saved(Image.fromarray(clear, "RGBA"), "PNG"),
        "hidden_grey_alpha.png": saved(Image.fromarray(clear, "RGBA").convert("LA"), "PNG"),
        "hidden_palette.png": saved(two_clear, "PNG", transparency=0),
        "hidden_colour_key.png": saved(image, "PNG", transparency=tuple(image.getpixel((1, 1)))),
        "animated.png": saved(frames[0], "PNG", save_all=True, append_images=frames[1:]),
        "animated.gif": saved(frames[0], "GIF", save_all=True, append_images=frames[1:]),
        "still.webp": saved(image, "WEBP", lossless=True),
        "still.bmp": saved(image.resize((4, 4)), "BMP"),
        "still.tiff": saved(image.resize((4, 4)), "TIFF"),
        "two_pictures.jpg": 2 * saved(image, "JPEG"),
    }


def samples(data):
    if b"\xff\xc4" not in data and data[:2] == b"\xff\xd8":
        return None
    picture = ImageOps.exif_transpose(Image.open(io.BytesIO(data))).convert("RGB")
    values = np.asarray(picture)[::STEP, ::STEP].tobytes().hex()
    return {"width": picture.width, "height": picture.height, "samples": values}


if __name__ == "__main__":
    (HERE / "images").mkdir(exist_ok=True)
    seen = {}
    good = accepted()
    for name, data in (good | refused()).items():
        (HERE / "images" / name).write_bytes(data)
    for name, data in good.items():
        seen[name] = samples(data) or samples(good["baseline_422.jpg"])
    (HERE / "images.json").write_text(
        json.dumps({"made_by": f"Pillow {PIL.__version__}", "step": STEP, "images": seen}, indent=1) + "\n"
    )
