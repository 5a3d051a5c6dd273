"""Random lines with the unusual characters that real files contain."""

from random import Random

ALPHABETS = (
    "abcdefgäßñ ",
    "ab ",
    "漢字かな",
    "नमस्ते",
    "שלום עולם",
    "\u0301\u0323\u0e47a",
    "😀👩‍👩‍👧\u200d\ufe0f",
    "\u202e\u2066\ufeff\u200b",
)
CONTROLS = "\x00\x07\x08\x0b\x0c\r\x1b\x1c\x1d\x1e\x7f\x85\x9b\u2028\u2029 \t"
SPECIAL = (
    *("</s>", "<unk>", "@@ ", "\u2581", "&quot;", "<0x41>", "\u2585"),
    *("|||", "\ufffd", "[31m", "../", "%s", "'; --"),
)
"""Texts that mean something to tokenizers, terminals or other programs."""

LENGTHS = (0, 1, 3, 10, 10, 30, 30, 100, 1000)


def line_of_any_kind(random: Random, usual: tuple[int, ...] = LENGTHS, long: float = 0.02) -> bytes:
    """Return a random line without a line end. Its length in characters is one of `usual`, or with
    probability `long`, 20,000."""
    length = random.choice(usual) if random.random() >= long else 20_000
    match random.randrange(6):
        case 0:
            return random.randbytes(length).replace(b"\n", b"")
        case 1:
            return "".join(random.choices(CONTROLS, k=length)).encode()
        case 2:
            return "".join(random.choices(SPECIAL, k=length // 4)).encode()
        case 3:
            return (random.choice(random.choice(ALPHABETS)) * length).encode()
        case 4:
            return " ".join("".join(random.choices(ALPHABETS[0], k=5)) for _ in range(length // 5)).encode()
        case _:
            return "".join(random.choices(random.choice(ALPHABETS), k=length)).encode()
