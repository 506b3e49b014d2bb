"""The five noise kinds of the perturbation spread, as training noise.

Same kinds, strengths and order as src/scene/perturb.rs; the random numbers are numpy's, so single copies differ from the
daemon's, their distribution does not.
"""

import numpy as np

COPIES = 20
SIGMA_WEAK, SIGMA_STRONG = 8, 24
PATCH_SHARE = 0.25
OPAQUE, TRANSLUCENT = 128, 255


def gaussian(image, sigma, rng):
    noise = np.rint(rng.normal(0.0, sigma, image.shape))
    return np.clip(image + noise, 0, 255).astype(np.uint8)


def box_blur(patch, radius):
    """Mean over a square of side 2·radius+1, edges repeated."""
    side = 2 * radius + 1
    padded = np.pad(patch.astype(np.float64), ((radius, radius), (radius, radius), (0, 0)), mode="edge")
    total = np.pad(padded.cumsum(axis=0).cumsum(axis=1), ((1, 0), (1, 0), (0, 0)))
    window = total[side:, side:] - total[:-side, side:] - total[side:, :-side] + total[:-side, :-side]
    return window / side**2


def copy(image, rng, index):
    """Copy `index` of an image u8 [H,W,3]: kind `index mod 5`, patch at a random place."""
    kind = index % 5
    if kind < 2:
        return gaussian(image, (SIGMA_WEAK, SIGMA_STRONG)[kind], rng)
    height, width = (int(s * PATCH_SHARE) for s in image.shape[:2])
    top, left = rng.integers(image.shape[0] - height + 1), rng.integers(image.shape[1] - width + 1)
    changed = image.copy()
    patch = changed[top : top + height, left : left + width]
    if kind == 2:
        patch[:] = OPAQUE
    elif kind == 3:
        patch[:] = (patch.astype(np.uint16) + TRANSLUCENT + 1) // 2
    else:
        radius = max(min(height, width) // 16, 1)
        patch[:] = np.rint(box_blur(box_blur(patch, radius), radius)).astype(np.uint8)
    return changed
