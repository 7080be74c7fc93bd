"""Generates text that nobody writes, from the dark corners of Unicode."""

import random

# These characters have kept their properties since Unicode 13, so all libraries agree on them.
CORNERS = {
    "ASCII": "20-7E 20-7E 20-7E",
    "controls": "0-1F 7F-9F AD-AD",
    "Latin": "A0-AC AE-24F 1E00-1EFF 2C60-2C7F 130-131",
    "combining": "300-36F 1AB0-1AC0 20D0-20F0 302A-302F",
    "Greek": "391-3A1 3A3-3C9 1F00-1F15 3A3-3A3 37E-37E",
    "Cyrillic, Georgian": "400-52F 10A0-10C5 10D0-10FF 1C90-1CBA",
    "right to left": "5D0-5EA 591-5C7 600-605 610-61A 621-65F",
    "India, Thailand": "900-97F B82-B83 E01-E3A F3A-F3D",
    "spaces": "2000-200F 2028-202F 205F-2064 3000-3003 85-85",
    "punctuation": "2010-2027 2030-205E 2308-230B 2329-232A",
    "CJK": "4E00-9FEF 3400-4DB5 3040-30FF FE30-FE4F FF01-FF65",
    "CJK extensions": "20000-2A6D6 2A700-2CEA1 2CEB0-2EBE0 30000-3134A",
    "CJK compatible": "F900-FA6D 2F800-2FA1D 2F00-2FD5",
    "Hangul": "AC00-D7A3 1100-11FF",
    "emoji": "1F300-1F64F 200D-200D FE0E-FE0F 1F1E6-1F1FF",
    "tags": "E0001-E0001 E0020-E007F E0100-E01EF FEFF-FEFF",
    "other planes": "10400-1044F 1D400-1D454 1D15E-1D182 1E900-1E943",
    "private": "E000-E0FF F8FF-F8FF F0000-F00FF 10FFFD-10FFFD",
    "unassigned": "378-379 530-530 FDD0-FDEF FFFD-FFFF 1FFFE-1FFFF",
}
LITERALS = [*"[MASK] [UNK] ## ##s [unused1] e\u0301 ΟΔΟΣ ΑΣ.Σ I\u0307".split(), "\r\n"]


def hostile_lines(count: int, seed: int) -> list[str]:
    """Returns `count` lines of a few corners each; some words have about 200 characters."""
    rng = random.Random(seed)
    return [_line(rng) for _ in range(count)]


def _line(rng: random.Random) -> str:
    ranges = " ".join(CORNERS[name] for name in rng.sample(sorted(CORNERS), 3)).split()
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


def _character(rng: random.Random, ranges: list[str]) -> str:
    first, last = rng.choice(ranges).split("-")
    return chr(rng.randint(int(first, 16), int(last, 16)))
