"""Ten words as a microphone's log-mel energies might show them: 49 frames of 10 bands, made by arithmetic alone.

A word is three sounds of two resonances each. Who speaks moves the resonances and the speed; the word begins anywhere,
another word goes on behind it, and there is noise. So networks for keyword spotting can be trained where no recordings
are: accuracy here says what quantization does to such a network, and nothing of speech.
"""

import numpy as np

FRAMES, BANDS, CLASSES = 49, 10, 10
#: Where the two resonances of each sound are, as bands.
SOUNDS = np.array([(1.0, 3.0), (1.0, 5.5), (2.5, 4.5), (2.5, 7.5), (4.0, 6.0), (5.5, 8.5)])
#: The sounds of each word; some share two of three, some are others said backwards.
WORDS = np.array(
    [(0, 1, 2), (2, 1, 0), (0, 1, 3), (3, 4, 5), (5, 4, 3), (1, 4, 2), (1, 5, 2), (4, 0, 4), (4, 0, 3), (5, 2, 5)]
)
SEEDS = {"train": 1, "test": 2}


def words(split: str, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Return spectrograms of shape (count, 49, 10, 1) and the words that they are of.

    Args:
        split: "train" or "test"; they share no sample.
        count: How many.
    """
    random = np.random.default_rng(SEEDS[split])
    labels = random.integers(0, CLASSES, count)
    energy = _said(labels, random)
    energy += random.uniform(0.05, 0.7, (count, 1, 1)) * _said(random.integers(0, CLASSES, count), random)
    energy += random.uniform(0.05, 0.5, (count, 1, 1)) * random.exponential(1.0, energy.shape)
    loud = np.log(energy + 1e-2) + random.normal(0.0, 1.0, (count, 1, 1))
    return loud[..., None].astype(np.float32), labels


def _said(labels: np.ndarray, random: np.random.Generator) -> np.ndarray:
    """Return the energies of words that somebody says, each somewhere within the frames."""
    count = len(labels)
    length = random.uniform(20, 40, (count, 1))
    begin = random.uniform(0, FRAMES - length)
    place = (np.arange(FRAMES) - begin) / length * 3
    said = (place >= 0) & (place < 3)
    sounds = np.take_along_axis(WORDS[labels], np.clip(place.astype(int), 0, 2), axis=1)
    voice = random.normal(0.0, 0.5, (count, 1, 2))
    middle = SOUNDS[sounds] + voice + random.normal(0.0, 0.3, (count, FRAMES, 2))
    far = np.arange(BANDS)[None, None, :, None] - middle[:, :, None, :]
    return said[..., None] * np.exp(-0.5 * (far / 0.8) ** 2).sum(-1)
