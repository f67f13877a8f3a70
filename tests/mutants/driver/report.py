"""What the figures are, and what survived."""

import math
import statistics


def wilson(caught, total, z=1.959964):
    """The 95 % interval of a share."""
    if total == 0:
        return 0.0, 1.0
    share = caught / total
    middle = share + z * z / (2 * total)
    width = z * math.sqrt(share * (1 - share) / total + z * z / (4 * total * total))
    scale = 1 + z * z / total
    return max(0.0, (middle - width) / scale), min(1.0, (middle + width) / scale)


def line(mutant):
    return f"{mutant['number']:5}  {mutant['file']}:{mutant['line']}  {mutant['function']}  [{mutant['operator']}]"


def change(mutant, most=160):
    cut = [text if len(text) <= most else f"{text[: most - 1]}…" for text in (mutant["from"], mutant["to"])]
    return f"       {cut[0]} → {cut[1] or '(nothing)'}"


def summary(chosen, put_aside, results, seed, viable, refused):
    """The lines, and whether any mutant survived."""
    lines = []
    survivors = [mutant for mutant in chosen if results[mutant["key"]]["verdict"] != "caught"]
    for mutant in survivors:
        result = results[mutant["key"]]
        lines += [f"{line(mutant)}: {result['verdict']}, {result['tests']} tests", change(mutant)]
    caught = [results[mutant["key"]] for mutant in chosen if results[mutant["key"]]["verdict"] == "caught"]
    low, high = wilson(len(caught), len(chosen))
    by = {}
    for result in caught:
        by[result["by"]] = by.get(result["by"], 0) + 1
    cpu = statistics.median(result["cpu"] for result in caught) if caught else 0.0
    lines += [
        "",
        f"{len(caught)} of {len(chosen)} mutants were caught: {len(caught) / max(len(chosen), 1):.1%}, "
        f"95 % interval {low:.1%} to {high:.1%}",
        f"seed {seed}; {viable} mutants compile, {refused} don't; {len(put_aside)} of the sample were equivalent and replaced",
        f"by {', '.join(f'{name}: {number}' for name, number in by.items())}; "
        f"{sum(result['how'] == 'time' for result in caught)} by their time limit; {cpu:.1f} s of CPU in the median",
    ]
    return lines, bool(survivors)
