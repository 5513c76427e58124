"""Files with something wrong in them."""

import random


def mutated(content: bytes, rng: random.Random) -> bytes:
    """The same bytes with one to three things wrong."""
    data = bytearray(content)
    for _ in range(rng.randint(1, 3)):
        place = rng.randrange(len(data) + 1)
        kind = rng.randrange(8)
        if kind == 0:
            del data[place:]
        elif kind == 1 and place < len(data):
            data[place] ^= 1 << rng.randrange(8)
        elif kind == 2:
            data[place:place] = rng.choice([b'"', b"'", b'""', b'"\n', b' "', b'" ', b"\\", b'","'])
        elif kind == 3:
            data[place:place] = rng.choice(
                [b",", b"\n", b"\r", b"\r\n", b";", b",,", b"\n\n", b" ", b"\t", b"#"]
            )
        elif kind == 4:
            data[place:place] = rng.choice(
                [b"1e400", b"inf", b"nan", b"NA", b"-", b"_", b"\xa0", b"0x1", b"true", b"9" * 50]
            )
        elif kind == 5:
            data[place:place] = rng.choice(
                [b"\0", b"\xe9", b"\xff\xfe", b"\xef\xbb\xbf", b"\x1a", "é\u2028".encode()]
            )
        elif kind == 6:
            del data[place : place + rng.randint(1, 9)]
        else:
            data[place:place] = data[place : place + rng.randint(1, 40)]
    return bytes(data)
