"""Secure sums: pairwise masks that cancel when the contributions of all members are added.

For every exchange and every pair of members, integers uniform modulo 2^256 are derived from what
only these two know. The member with the smaller name adds them, the other one subtracts them. What
is derived depends on the hash of the transcript: the study, the keys, and all contributions so far.
So two exchanges never share a mask, and members to whom the coordinator showed different
transcripts have masks that do not cancel: the sum of their contributions is noise.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from fedsplit import fixed_point
from fedsplit.errors import RequestError
from fedsplit.federation import keys
from fedsplit.federation.keys import digest
from fedsplit.federation.messages import Response, read_response
from fedsplit.federation.study import Study
from fedsplit.fixed_point import LIMBS, Limbs

NUMBER = 8 * LIMBS
"""Bytes of a number in fixed point."""


def mask(name: str, own: bytes, partners: Mapping[str, bytes], transcript: bytes, n: int) -> Limbs:
    """Return what a member adds to its n numbers, (n, 4).

    Parameters
    ----------
    name : str
        Of the member.
    own : bytes
        Its X25519 private key for the study.
    partners : mapping of str to bytes
        The public keys of the other members.
    transcript : bytes
        The hash of all exchanges before this one.
    n : int
    """
    total = fixed_point.encode([0.0] * n)
    for partner, public in partners.items():
        first, second = sorted((name, partner))
        # Names in order, so that both of a pair derive the same integers.
        about = digest(b"mask", transcript, first.encode(), second.encode())
        shared = keys.stream(keys.agree(own, public), about, NUMBER * n)
        combine = fixed_point.add if name == first else fixed_point.subtract
        total = combine(total, fixed_point.from_bytes(shared))
    return total


def last_digits(own: bytes, question: bytes) -> Callable[[Limbs], Callable[[int], bytes]]:
    """Return what random last digits of a member's numbers are drawn from.

    They depend on the question and the numbers, so that no two answers share them, and the same
    answer has the same ones. The sum then discloses nothing of how a single site rounds.
    """

    def of(numbers: Limbs) -> Callable[[int], bytes]:
        about = digest(b"last digits", question, fixed_point.to_bytes(numbers))
        return keys.reader(own, about)

    return of


def read_posts(study: Study, number: int, transcript: bytes, posts: Sequence[bytes]) -> list[bytes]:
    """Return what each member contributed to an exchange, which it signed for this transcript."""
    # A sum over fewer members would differ from another one by a single site.
    if len(posts) != len(study.members):
        raise RequestError("the contributions of some members are missing")
    values = []
    for (name, key), post in zip(study.members.items(), posts, strict=True):
        response: Response = read_response(bytes.fromhex(key), post)
        belongs = (response.study, response.number) == (study.digest, number)
        if not belongs or response.transcript != transcript or response.outcome != "answer":
            raise RequestError(f"the contribution of {name} belongs to another exchange")
        values.append(response.value)
    return values


def total(values: Sequence[bytes]) -> Limbs:
    """Return the sum of all members' contributions, in which no masks are left, (n, 4)."""
    sizes = {len(each) for each in values}
    if len(sizes) != 1 or sizes.pop() % NUMBER:
        raise RequestError("the contributions of the members have different lengths")
    numbers = [fixed_point.from_bytes(each) for each in values]
    return fixed_point.total(numbers, len(numbers[0]))


def extended(transcript: bytes, posts: Sequence[bytes]) -> bytes:
    """Return the hash of a transcript after one more exchange.

    Questions need not enter: they are a function of the study and of the contributions.
    """
    return digest(transcript, *posts)
