"""Texts of unknown origin, made safe to show on a terminal."""

from __future__ import annotations


def printable(text: str) -> str:
    """The text without the characters that control a terminal; line breaks stay."""
    return "".join(
        letter if letter.isprintable() or letter == "\n" else "\ufffd" for letter in text
    )


def one_line(text: str, longest: int | None = 300) -> str:
    """The text in one line of at most ``longest`` characters, none of which controls a terminal."""
    return printable(" ".join(text.split()))[:longest]


def attributed(client: str, text: str) -> str:
    """The text of a client in one line that begins with its name."""
    line = " ".join(text[:500].split())
    if line.startswith((f"client {client}: ", f"client {client}, ")):
        return line
    return f"client {client}: {line}"
