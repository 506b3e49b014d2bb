"""Draws the cut-outs of config/objects.toml: 26 everyday items as small PNGs with alpha, by shapes and shading alone.

    pip install numpy pillow && python draw.py

The drawings are ours and in the public domain (CC0). None is sharp, weapon-like, or bears text. Light falls from the
upper left; the compositor tones each drawing to the picture it is put into.
"""

import pathlib

import numpy as np
from PIL import Image, ImageDraw, ImageFilter

SIDE = 640  # drawn large, kept small
KEPT = 128
HERE = pathlib.Path(__file__).parent


class Sheet:
    """A canvas in units of 0 to 100, x to the right and y downwards."""

    def __init__(self):
        self.image = Image.new("RGBA", (SIDE, SIDE), (0, 0, 0, 0))

    def paint(self, draw, colour, shade="cylinder", dark=0.55):
        mask = Image.new("L", (SIDE, SIDE), 0)
        draw(Pen(mask))
        mask = mask.filter(ImageFilter.GaussianBlur(0.8))
        alpha = np.asarray(mask, dtype=float) / 255
        ys, xs = np.nonzero(alpha > 0.5)
        if len(xs) == 0:
            return self
        x0, x1, y0, y1 = xs.min(), xs.max() + 1, ys.min(), ys.max() + 1
        gx = (np.arange(SIDE)[None, :] - x0) / (x1 - x0)
        gy = (np.arange(SIDE)[:, None] - y0) / (y1 - y0)
        if shade == "cylinder":
            light = 1.12 - (1 - dark) * 1.6 * np.abs(gx - 0.35) ** 1.5 + 0 * gy
        elif shade == "sphere":
            light = 1.15 - (1 - dark) * 1.3 * np.hypot(gx - 0.35, gy - 0.3) ** 1.6
        elif shade == "down":
            light = 1.05 - (1 - dark) * gy + 0 * gx
        else:
            light = np.ones((SIDE, SIDE))
        rgb = np.clip(np.array(colour)[None, None, :] * np.clip(light, 0.2, 1.2)[..., None], 0, 255)
        layer = np.dstack([rgb, alpha * 255]).astype(np.uint8)
        self.image = Image.alpha_composite(self.image, Image.fromarray(layer, "RGBA"))
        return self

    def save(self, name):
        box = self.image.getchannel("A").point(lambda a: 255 if a > 12 else 0).getbbox()
        cut = self.image.crop(box)
        scale = KEPT / max(cut.size)
        size = tuple(max(1, round(side * scale)) for side in cut.size)
        # Shrunk with colour weighted by alpha, so that no dark rim creeps in.
        rgba = np.asarray(cut, dtype=float)
        rgba[..., :3] *= rgba[..., 3:] / 255
        planes = [Image.fromarray(rgba[..., c].astype(np.float32)).resize(size, Image.LANCZOS) for c in range(4)]
        small = np.clip(np.dstack([np.asarray(p) for p in planes]), 0, 255)
        small[..., :3] = np.where(small[..., 3:] > 0, small[..., :3] * 255 / np.maximum(small[..., 3:], 1), 0)
        Image.fromarray(np.clip(small, 0, 255).astype(np.uint8), "RGBA").save(HERE / f"{name}.png", optimize=True)


class Pen:
    def __init__(self, mask):
        self.d, self.k = ImageDraw.Draw(mask), SIDE / 100

    def oval(self, x, y, w, h, fill=255):
        self.d.ellipse([v * self.k for v in (x, y, x + w, y + h)], fill=fill)

    def rect(self, x, y, w, h, r=0.0, fill=255):
        self.d.rounded_rectangle([v * self.k for v in (x, y, x + w, y + h)], radius=r * self.k, fill=fill)

    def poly(self, *points, fill=255):
        self.d.polygon([(x * self.k, y * self.k) for x, y in points], fill=fill)

    def arc(self, x, y, w, h, start, end, width):
        self.d.arc([v * self.k for v in (x, y, x + w, y + h)], start, end, fill=255, width=int(width * self.k))


def vessel(top, bottom, left, right, squeeze):
    """A round vessel's side view: flat sides between two flattened ovals."""

    def draw(p):
        depth, inset = (right - left) * 0.12, squeeze
        p.poly((left, top), (right, top), (right - inset, bottom), (left + inset, bottom))
        p.oval(left + inset, bottom - depth, right - left - 2 * inset, 2 * depth)
        p.oval(left, top - depth, right - left, 2 * depth)

    return draw


def rim(top, left, right, thick):
    return lambda p: p.oval(left + thick, top - (right - left) * 0.12 + thick * 0.6, right - left - 2 * thick,
                            (right - left) * 0.24 - 1.2 * thick)


def each():
    s = Sheet().paint(lambda p: p.arc(60, 35, 30, 34, -100, 100, 6), (52, 104, 160))
    s.paint(vessel(25, 82, 15, 72, 3), (58, 116, 178)).paint(rim(25, 15, 72, 3), (30, 52, 84), "down")
    yield "mug", s
    s = Sheet().paint(vessel(15, 88, 24, 76, 9), (236, 232, 222)).paint(rim(15, 24, 76, 2), (196, 190, 178), "down")
    s.paint(lambda p: p.poly((26.5, 38), (73.5, 38), (70, 62), (30, 62)), (176, 128, 84))
    yield "paper cup", s
    s = Sheet().paint(vessel(40, 78, 6, 94, 26), (214, 120, 66)).paint(rim(40, 6, 94, 3), (150, 78, 40), "down")
    yield "bowl", s
    s = Sheet().paint(lambda p: p.oval(3, 40, 94, 30), (232, 232, 228), "down", 0.8)
    s.paint(lambda p: p.oval(18, 44, 64, 19), (206, 208, 206), "down", 1.0)
    yield "plate", s
    s = Sheet().paint(lambda p: (p.rect(30, 34, 40, 62, 9), p.poly((30, 42), (43, 18), (57, 18), (70, 42)),
                                 p.rect(43, 8, 14, 22, 2)), (62, 150, 116))
    s.paint(lambda p: p.rect(42, 3, 16, 9, 2), (236, 238, 240)).paint(lambda p: p.rect(30, 54, 40, 24), (222, 226, 214))
    yield "bottle", s
    s = Sheet().paint(lambda p: p.rect(22, 20, 56, 76, 10), (196, 98, 52)).paint(lambda p: p.rect(25, 6, 50, 16, 4), (212, 206, 196))
    yield "jar", s
    s = Sheet().paint(lambda p: (p.oval(18, 34, 64, 60), p.rect(36, 12, 28, 34), p.oval(32, 6, 36, 13), p.rect(34, 84, 32, 12, 3)),
                      (98, 86, 146)).paint(lambda p: p.oval(36, 8, 28, 8), (44, 38, 72), "down")
    yield "vase", s
    s = Sheet().paint(lambda p: p.rect(48, 8, 4, 18, 2), (92, 62, 38))
    s.paint(lambda p: (p.oval(12, 20, 46, 70), p.oval(42, 20, 46, 70), p.oval(20, 28, 60, 64)), (190, 38, 44), "sphere")
    s.paint(lambda p: p.oval(51, 8, 24, 11), (84, 138, 62), "sphere")
    yield "apple", s
    s = Sheet().paint(lambda p: p.oval(10, 10, 80, 80), (232, 134, 34), "sphere").paint(lambda p: p.oval(46, 12, 8, 5), (92, 108, 48))
    yield "orange", s
    s = Sheet().paint(lambda p: (p.oval(14, 26, 72, 48), p.oval(4, 42, 18, 16), p.oval(78, 42, 18, 16)), (236, 208, 58), "sphere")
    yield "lemon", s

    def banana(p):
        p.oval(2, 2, 96, 82)
        p.oval(8, -14, 84, 76, fill=0)
        p.rect(0, 0, 100, 30, fill=0)

    s = Sheet().paint(banana, (236, 200, 62), "down", 0.75).paint(lambda p: p.rect(3.5, 29, 6, 7, 2), (110, 86, 40))
    yield "banana", s
    s = Sheet().paint(lambda p: p.rect(48, 4, 4, 18, 2), (92, 62, 38))
    s.paint(lambda p: (p.oval(18, 38, 64, 58), p.oval(32, 14, 36, 50)), (158, 184, 72), "sphere")
    yield "pear", s
    s = Sheet().paint(lambda p: (p.rect(6, 40, 88, 42, 12), p.oval(4, 26, 92, 40)), (182, 122, 62), "down", 0.6)
    for x in (26, 44, 62):
        s.paint(lambda p, x=x: p.poly((x, 30), (x + 5, 29), (x + 12, 46), (x + 7, 47)), (224, 186, 128), "none")
    yield "loaf of bread", s
    s = Sheet().paint(lambda p: (p.poly((40, 50), (46, 44), (97, 82), (93, 88)), p.oval(6, 18, 46, 38)), (190, 146, 92), "sphere")
    s.paint(lambda p: p.oval(13, 24, 31, 24), (164, 120, 72), "sphere")
    yield "wooden spoon", s
    s = Sheet().paint(lambda p: p.rect(6, 52, 88, 30, 7), (70, 138, 92)).paint(lambda p: p.rect(6, 30, 88, 36, 7), (238, 206, 76), "down", 0.8)
    for x, y in ((18, 40), (34, 48), (52, 38), (70, 46), (82, 39), (44, 56), (24, 57), (64, 57)):
        s.paint(lambda p, x=x, y=y: p.oval(x, y, 4, 3), (206, 170, 48), "none")
    yield "sponge", s
    s = Sheet()
    for y, tone in ((62, 0.86), (46, 0.93), (30, 1.0)):
        s.paint(lambda p, y=y: p.rect(4, y, 92, 22, 10), tuple(v * tone for v in (126, 178, 196)), "down", 0.7)
    yield "folded towel", s
    s = Sheet().paint(lambda p: (p.rect(8, 28, 84, 46, 20), p.poly((4, 24), (20, 32), (12, 44)), p.poly((96, 24), (80, 32), (88, 44)),
                                 p.poly((4, 78), (20, 70), (12, 58)), p.poly((96, 78), (80, 70), (88, 58))), (216, 204, 186), "sphere", 0.6)
    yield "pillow", s
    s = Sheet().paint(lambda p: p.poly((14, 62), (86, 62), (98, 82), (3, 82)), (136, 44, 52), "down", 0.8)
    s.paint(lambda p: p.rect(3, 82, 95, 4), (238, 232, 214), "none").paint(lambda p: p.rect(3, 86, 95, 4, 1), (112, 34, 42), "none")
    yield "closed book", s
    s = Sheet().paint(lambda p: p.poly((10, 36), (52, 46), (52, 96), (10, 82)), (190, 146, 96), "none")
    s.paint(lambda p: p.poly((52, 46), (92, 34), (92, 80), (52, 96)), (150, 110, 68), "none")
    s.paint(lambda p: p.poly((10, 36), (50, 26), (92, 34), (52, 46)), (214, 174, 122), "none")
    s.paint(lambda p: p.poly((28, 31.5), (34, 30), (76, 39), (70, 41)), (198, 160, 112), "none")
    yield "cardboard box", s
    s = Sheet().paint(lambda p: p.poly((12, 34), (54, 42), (54, 94), (12, 80)), (206, 66, 60), "none")
    s.paint(lambda p: p.poly((54, 42), (90, 30), (90, 76), (54, 94)), (158, 44, 42), "none")
    s.paint(lambda p: p.poly((12, 34), (50, 22), (90, 30), (54, 42)), (230, 104, 92), "none")
    yield "toy block", s
    s = Sheet().paint(lambda p: p.oval(8, 8, 84, 84), (58, 128, 196), "sphere")
    s.paint(lambda p: (p.arc(20, -8, 60, 116, 100, 260, 5), p.arc(-34, 8, 84, 84, -62, 62, 5)), (240, 240, 236), "none")
    s.image.putalpha(Image.fromarray(np.minimum(np.asarray(s.image.getchannel("A")),
                                                np.asarray(Sheet().paint(lambda p: p.oval(8, 8, 84, 84), (0, 0, 0)).image.getchannel("A")))))
    yield "ball", s
    fur, pale = (150, 106, 70), (202, 164, 124)
    s = Sheet().paint(lambda p: (p.oval(24, 4, 18, 18), p.oval(58, 4, 18, 18)), fur, "sphere")
    s.paint(lambda p: (p.oval(8, 42, 26, 22), p.oval(66, 42, 26, 22), p.oval(14, 74, 30, 22), p.oval(56, 74, 30, 22)), fur, "sphere")
    s.paint(lambda p: p.oval(24, 38, 52, 54), fur, "sphere").paint(lambda p: p.oval(34, 50, 32, 34), pale, "sphere")
    s.paint(lambda p: p.oval(26, 6, 48, 42), fur, "sphere").paint(lambda p: p.oval(39, 26, 22, 17), pale, "sphere")
    s.paint(lambda p: (p.oval(37, 20, 5, 6), p.oval(58, 20, 5, 6), p.oval(46, 28, 8, 5)), (36, 26, 22), "none")
    yield "teddy bear", s
    s = Sheet()
    for x, y, w, h in ((14, 8, 34, 34), (50, 4, 34, 36), (30, 0, 36, 34), (8, 26, 36, 26), (56, 24, 36, 28), (30, 22, 40, 34)):
        s.paint(lambda p, b=(x, y, w, h): p.oval(*b), (66, 130, 64), "sphere")
    s.paint(vessel(54, 92, 26, 74, 8), (188, 104, 68))
    yield "potted plant", s
    s = Sheet().paint(lambda p: p.poly((34, 34), (40, 10), (54, 20), (66, 8), (68, 36)), (246, 246, 244), "down", 0.85)
    s.paint(lambda p: p.rect(8, 34, 84, 46, 3), (148, 182, 160), "down", 0.75).paint(lambda p: p.oval(30, 32, 42, 7), (94, 124, 108), "none")
    yield "tissue box", s
    s = Sheet().paint(vessel(26, 84, 16, 84, 0), (240, 238, 232)).paint(lambda p: p.oval(16, 18, 68, 16.5), (248, 246, 242), "down", 0.95)
    s.paint(lambda p: p.oval(39, 22.5, 22, 7), (128, 104, 82), "down")
    yield "paper roll", s
    s = Sheet().paint(lambda p: p.poly((22, 44), (78, 34), (94, 60), (30, 74)), (54, 56, 62), "down", 0.75)
    for row in range(3):
        for column in range(5):
            x, y = 31 + column * 11 + row * 2.6, 49 + row * 7.2 - column * 1.9
            s.paint(lambda p, x=x, y=y: p.oval(x, y, 6, 3.4), (172, 176, 182) if (row, column) != (0, 4) else (190, 70, 62), "none")
    yield "remote control", s


if __name__ == "__main__":
    names = []
    for name, sheet in each():
        sheet.save(name.replace(" ", "_"))
        names.append(name)
    assert len(names) == len(set(names)) == 26, len(names)
