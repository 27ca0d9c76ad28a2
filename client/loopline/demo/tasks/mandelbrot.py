"""Prints one strip of a picture of the Mandelbrot set: a line of hexadecimal digits for each of its rows, two a
pixel.

python3 mandelbrot.py --strip 3 --of 24
"""

import argparse
import math

WIDTH, HEIGHT = 960, 640
CENTRE, ACROSS = complex(-0.74364, 0.13182), 0.0062
DEPTH = 700  # rounds after which a point counts as inside


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--strip", type=int, required=True, help="from 1")
    arguments.add_argument("--of", type=int, required=True, help="number of strips")
    given = arguments.parse_args()
    for y in range((given.strip - 1) * HEIGHT // given.of, given.strip * HEIGHT // given.of):
        print(bytes(level(point(x, y)) for x in range(WIDTH)).hex(), flush=True)


def point(x: int, y: int) -> complex:
    return CENTRE + complex(x - WIDTH / 2, HEIGHT / 2 - y) * ACROSS / WIDTH


def level(c: complex) -> int:
    """Return a colour from 1 to 255 by how soon the point escapes; 0 if it stays."""
    real, imaginary, a, b = 0.0, 0.0, c.real, c.imag
    for rounds in range(DEPTH):
        x2, y2 = real * real, imaginary * imaginary
        if x2 + y2 > 64:
            smooth = rounds - math.log2(math.log2(x2 + y2))
            return 1 + int(40 * math.sqrt(max(0.0, smooth))) % 255
        real, imaginary = x2 - y2 + a, 2 * real * imaginary + b
    return 0


if __name__ == "__main__":
    main()
