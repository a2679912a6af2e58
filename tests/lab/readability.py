"""`make readability`: is what users read first easy to read? README, the tutorial, the how-to guides, without code, tables and headings.

readability.py [FILE...]    -v: the longest sentence of each page, too
"""

import re
import sys
from pathlib import Path

import textstat

TOP = Path(__file__).parents[2]
EASIEST = 55
"""Flesch reading ease, at least."""
WORDS = 16
"""In a sentence, on average at most."""


def sentences(text):
    text = re.sub(r"(?ms)^ *```.*?^ *```$", "", text)
    text = re.sub(r"(?m)^ *\|.*$|^#.*$", "", text)
    text = re.sub(r"(?s)<!--.*?-->|</?[a-z][^>]*>", "", text)
    text = re.sub(r"!\[[^\]]*\]\([^)]*\)", "", text)
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text)
    text = re.sub(r"<https?:[^>]*>|`[^`]*`", "it", text)
    text = text.replace("**", "").replace(" · ", ". ")
    # A paragraph and an item of a list end a sentence.
    for part in re.split(r"\n\s*\n|\n\s*(?:-|\d+\.) ", text):
        part = re.sub(r"^\s*(?:-|\d+\.)\s+", "", part)
        part = " ".join(part.split()).rstrip(".:;,")
        if part:
            yield from re.split(r"(?<=[.?!])\s+", part + ("" if part[-1] in "?!" else "."))


def measured(file):
    """Reading ease, words a sentence, the longest sentence."""
    found = list(sentences(file.read_text()))
    lengths = [len(sentence.split()) for sentence in found]
    return textstat.flesch_reading_ease("\n".join(found)), sum(lengths) / len(lengths), max(found, key=lambda it: len(it.split()))


def main(words):
    chatty = "-v" in words
    files = [Path(word) for word in words if word != "-v"]
    files = files or [TOP / "README.md", TOP / "docs/tutorial.md", *sorted(TOP.glob("docs/how-to/*.md"))]
    hard = 0
    for file in files:
        ease, average, longest = measured(file)
        is_hard = ease < EASIEST or average > WORDS
        hard += is_hard
        if is_hard or chatty:
            print(f"{file}: reading ease {ease:.0f}, {average:.1f} words a sentence. The longest: {longest}")
    print(f"{len(files)} pages, {hard} of them hard to read (reading ease below {EASIEST} or over {WORDS} words a sentence)")
    sys.exit(hard > 0)


main(sys.argv[1:])
