"""Chooses mutants at random, and knows those that change no behaviour."""

import hashlib
import sys
import tomllib

from .places import HERE

FILE = HERE / "equivalent.toml"


def choose(mutants, equivalent, seed, count):
    """So many at random that aren't equivalent, with the equivalent ones that were met on the way.

    The order comes from the seed and each mutant's own text: where the source changes, the rest of a sample stays the same.
    """
    order = sorted(mutants, key=lambda mutant: hashlib.sha256(f"{seed}|{mutant['key']}".encode()).digest())
    chosen, put_aside = [], []
    for mutant in order:
        if len(chosen) == count:
            break
        (put_aside if mutant["number"] in equivalent else chosen).append(mutant)
    return chosen, put_aside


def equivalents(mutants):
    """The reason by number. An entry that names no mutant, or several, is an error: the source has changed under it."""
    entries = tomllib.loads(FILE.read_text()).get("equivalent", []) if FILE.exists() else []
    reasons, wrong = {}, []
    for entry in entries:
        found = [mutant for mutant in mutants if is_meant(entry, mutant)]
        if len(found) != 1:
            places = ", ".join(f"line {mutant['line']}" for mutant in found) or "none"
            wrong.append(f"{entry['file']}, {entry['function']}: {entry['from']!r} → {entry['to']!r} names {places}")
        elif not entry["why"].strip():
            wrong.append(f"{entry['file']}, {entry['function']}: no reason")
        else:
            reasons[found[0]["number"]] = entry["why"]
    if wrong:
        sys.exit("equivalent.toml:\n" + "\n".join(wrong))
    return reasons


def is_meant(entry, mutant):
    """Which of several with the same text: `nth`, from 1, in the order of the source; see `counted`."""
    same = all(entry[field] == mutant[field] for field in ("file", "function", "from", "to"))
    return same and entry.get("nth", mutant["nth"]) == mutant["nth"]


def counted(mutants):
    """Gives each mutant its place among those of its function with the same text, and a key that lasts as long as the text."""
    seen = {}
    for mutant in mutants:
        same = (mutant["file"], mutant["function"], mutant["from"], mutant["to"])
        seen[same] = mutant["nth"] = seen.get(same, 0) + 1
        mutant["key"] = "|".join([*same, str(mutant["nth"])])
    return mutants
