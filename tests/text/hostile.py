"""Generates text that nobody writes, from the dark corners of Unicode."""

import random

# These characters have kept their properties since Unicode 13, so all libraries agree on them.
CORNERS = {
    "ASCII": [(0x20, 0x7E)] * 3,
    "controls": [(0x00, 0x1F), (0x7F, 0x9F), (0xAD, 0xAD)],
    "Latin": [(0xA0, 0xAC), (0xAE, 0x24F), (0x1E00, 0x1EFF), (0x2C60, 0x2C7F), (0x130, 0x131)],
    "combining": [(0x300, 0x36F), (0x1AB0, 0x1AC0), (0x20D0, 0x20F0), (0x302A, 0x302F)],
    "Greek": [(0x391, 0x3A1), (0x3A3, 0x3C9), (0x1F00, 0x1F15), (0x3A3, 0x3A3), (0x37E, 0x37E)],
    "Cyrillic, Georgian": [(0x400, 0x52F), (0x10A0, 0x10C5), (0x10D0, 0x10FF), (0x1C90, 0x1CBA)],
    "right to left": [
        (0x5D0, 0x5EA),
        (0x591, 0x5C7),
        (0x600, 0x605),
        (0x610, 0x61A),
        (0x621, 0x65F),
    ],
    "India, Thailand": [(0x900, 0x97F), (0xB82, 0xB83), (0xE01, 0xE3A), (0xF3A, 0xF3D)],
    "spaces": [
        (0x2000, 0x200F),
        (0x2028, 0x202F),
        (0x205F, 0x2064),
        (0x3000, 0x3003),
        (0x85, 0x85),
    ],
    "punctuation": [(0x2010, 0x2027), (0x2030, 0x205E), (0x2308, 0x230B), (0x2329, 0x232A)],
    "CJK": [
        (0x4E00, 0x9FEF),
        (0x3400, 0x4DB5),
        (0x3040, 0x30FF),
        (0xFE30, 0xFE4F),
        (0xFF01, 0xFF65),
    ],
    "CJK extensions": [
        (0x20000, 0x2A6D6),
        (0x2A700, 0x2CEA1),
        (0x2CEB0, 0x2EBE0),
        (0x30000, 0x3134A),
    ],
    "CJK compatible": [(0xF900, 0xFA6D), (0x2F800, 0x2FA1D), (0x2F00, 0x2FD5)],
    "Hangul": [(0xAC00, 0xD7A3), (0x1100, 0x11FF)],
    "emoji": [(0x1F300, 0x1F64F), (0x200D, 0x200D), (0xFE0E, 0xFE0F), (0x1F1E6, 0x1F1FF)],
    "tags": [(0xE0001, 0xE0001), (0xE0020, 0xE007F), (0xE0100, 0xE01EF), (0xFEFF, 0xFEFF)],
    "other planes": [
        (0x10400, 0x1044F),
        (0x1D400, 0x1D454),
        (0x1D15E, 0x1D182),
        (0x1E900, 0x1E943),
    ],
    "private": [(0xE000, 0xE0FF), (0xF8FF, 0xF8FF), (0xF0000, 0xF00FF), (0x10FFFD, 0x10FFFD)],
    "unassigned": [
        (0x378, 0x379),
        (0x530, 0x530),
        (0xFDD0, 0xFDEF),
        (0xFFFD, 0xFFFF),
        (0x1FFFE, 0x1FFFF),
    ],
}
LITERALS = [
    "[MASK]",
    "[UNK]",
    "##",
    "##s",
    "[unused1]",
    "e\u0301",
    "ΟΔΟΣ",
    "ΑΣ.Σ",
    "I\u0307",
    "\r\n",
]


def hostile_lines(count: int, seed: int) -> list[str]:
    """Returns `count` lines of a few corners each; some words have about 200 characters."""
    rng = random.Random(seed)
    return [_line(rng) for _ in range(count)]


def _line(rng: random.Random) -> str:
    ranges = [part for name in rng.sample(sorted(CORNERS), 3) for part in CORNERS[name]]
    parts = []
    for _ in range(rng.randrange(60)):
        kind = rng.random()
        if kind < 0.1:
            parts.append(rng.choice(LITERALS))
        elif kind < 0.25:
            parts.append(" ")
        elif kind < 0.26:
            parts.append(_character(rng, ranges) * rng.randrange(198, 203))
        else:
            parts.append(_character(rng, ranges))
    return "".join(parts)


def _character(rng: random.Random, ranges: list[tuple[int, int]]) -> str:
    first, last = rng.choice(ranges)
    return chr(rng.randint(first, last))
