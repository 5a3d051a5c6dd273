"""Draw the sinusoids of section 3.5, and show that PE(p + k) is a linear function of PE(p).

    python -m recipes.claims.positions

For an offset k, one matrix M turns PE(p) into PE(p + k) for every p: it rotates each pair of sine and cosine.
The command measures the largest error of this matrix, and the dot product of PE(p) and PE(p + k), which
depends on k only. It writes `positions.svg` and the table in README.md, in seconds.
"""

import base64
import struct
import zlib
from datetime import UTC, datetime

import torch
from torch import Tensor

from nmt_cli.model.embedding import WAVELENGTH, sinusoids
from recipes.claims.results import HERE, write_table

WIDTH = 128
"""d_model of the table and of the picture."""

OFFSETS = (1, 2, 10, 100, 1000)
LAST = 4000
"""The last position at which errors are measured."""

DRAWN = 100
"""Positions in the picture."""


def rotation(offset: int) -> Tensor:
    """Return M, [WIDTH, WIDTH], with PE(p + offset) = PE(p) M."""
    matrix = torch.zeros(WIDTH, WIDTH, dtype=torch.float64)
    for pair in range(WIDTH // 2):
        angle = torch.tensor(offset / WAVELENGTH ** (2 * pair / WIDTH), dtype=torch.float64)
        sin, cos = float(angle.sin()), float(angle.cos())
        even, odd = 2 * pair, 2 * pair + 1
        matrix[even, even], matrix[odd, even] = cos, sin
        matrix[even, odd], matrix[odd, odd] = -sin, cos
    return matrix


def png(shades: list[list[int]]) -> bytes:
    """Return a greyscale PNG of rows of shades from 0 to 255."""

    def chunk(name: bytes, content: bytes) -> bytes:
        check = zlib.crc32(name + content)
        return struct.pack(">I", len(content)) + name + content + struct.pack(">I", check)

    header = struct.pack(">IIBBBBB", len(shades[0]), len(shades), 8, 0, 0, 0, 0)
    rows = b"".join(b"\0" + bytes(row) for row in shades)
    parts = chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + parts


def picture() -> str:
    """Return an SVG of the first positions (rows) and all channels (columns): black is -1, white is 1."""
    shades = ((sinusoids(DRAWN, WIDTH) + 1) * 127.5).round().int().tolist()
    data = base64.b64encode(png(shades)).decode()
    wide, tall, left, top = 5 * WIDTH, 4 * DRAWN, 60, 40
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{wide + 90}" height="{tall + 90}" '
        'font-family="sans-serif" font-size="12"><rect width="100%" height="100%" fill="white"/>',
        f'<text x="{left}" y="24">PE(p): sine in even channels, cosine in odd ones. '
        "Black is -1, white is 1.</text>",
        f'<image x="{left}" y="{top}" width="{wide}" height="{tall}" preserveAspectRatio="none" '
        f'style="image-rendering: pixelated" href="data:image/png;base64,{data}"/>',
    ]
    for channel in range(0, WIDTH + 1, 32):
        x = left + 5 * channel
        parts.append(f'<text x="{x}" y="{top + tall + 18}" text-anchor="middle">{channel}</text>')
    for position in range(0, DRAWN + 1, 20):
        y = top + 4 * position + 4
        parts.append(f'<text x="{left - 8}" y="{y}" text-anchor="end">{position}</text>')
    parts.append(f'<text x="{left + wide / 2}" y="{top + tall + 38}" text-anchor="middle">channel</text>')
    parts.append(f'<text x="8" y="{top - 8}">position</text></svg>')
    return "\n".join([*parts, ""])


def main() -> None:
    """Write the picture and the table."""
    (HERE / "positions.svg").write_text(picture(), encoding="utf-8")
    table = sinusoids(LAST, WIDTH).double()
    rows = []
    for offset in OFFSETS:
        before, after = table[:-offset], table[offset:]
        error = float((before @ rotation(offset) - after).abs().max())
        products = (before * after).sum(1)
        rows.append((f"{offset:,}", f"{error:.1e}", f"{products.min():.4f} to {products.max():.4f}"))
    columns = ("k", "largest error of M, any p and channel", "PE(p) · PE(p + k), lowest and highest of all p")
    note = f"d_model = {WIDTH}, positions up to {LAST:,}, sinusoids in fp32, {datetime.now(UTC).date()}."
    write_table("positions", columns, rows, note)


if __name__ == "__main__":
    main()
