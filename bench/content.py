"""What is stored: messages whose text no compressor can shorten by a quarter, and one kind that reads like prose.

*Payload*, in every table, is the encoded text of the messages alone (their `content`), counted once. Keys, roles, class
names and everything else that has to be stored beside the text count against us.
"""

from __future__ import annotations

import random

import zstandard

from clew.state.codec import encode

_PRINTABLE = bytes(32 + value % 95 for value in range(256))
_COMMON = (
    "the of and to a in that is was he for it with as his on be at by had not are but from or have an they which you "
    "one were her all she there would their we him been has when who will more no if out so said what up its about "
    "into than them can only other new some could time these two may then do first any my now such like our over man "
    "me even most made after also did many before must through years where much your way well down should because "
    "each just those people how too little state good very make world still own see men work long get here between "
    "both life being under never day same another know while last might us great old year off come since against go "
    "came right used take three flight hotel booking reservation traveller departure arrival confirmation passport "
    "itinerary luggage schedule payment customer request available weather restaurant station airport international"
)
_WORDS = _COMMON.split()


def text(rng: random.Random, size: int) -> str:
    """Random printable ASCII: 6.5 bits of chance in each byte, so that at most 18 % can be squeezed out."""
    return rng.randbytes(size).translate(_PRINTABLE).decode("ascii")


def prose(rng: random.Random, size: int) -> str:
    """Sentences of common words, the common ones more often."""
    weights = [1 / (rank + 3) for rank in range(len(_WORDS))]
    words = rng.choices(_WORDS, weights, k=size // 3)
    for at in range(0, len(words), 11):
        words[at] = words[at].capitalize()
        if at:
            words[at - 1] += "."
    return " ".join(words)[:size]


def message(content: str, step: int) -> dict[str, str]:
    return {"role": "assistant" if step % 2 else "user", "content": content}


def payload(contents: list[str]) -> int:
    """The bytes of the texts as encoded."""
    return sum(len(encode(content)) for content in contents)


def squeezed(content: str, level: int) -> float:
    """What zstd leaves of a text, as a fraction."""
    data = content.encode()
    return len(zstandard.ZstdCompressor(level=level).compress(data)) / len(data)
