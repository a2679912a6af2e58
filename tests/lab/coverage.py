"""Of an lcov file a table of some modules, without what only tests have: coverage.py FILE MODULE..., e.g. crates/core/src/session.

The lines that no test runs are named. Fails when a module has less than the bar."""

import re
import sys
from collections import defaultdict
from pathlib import Path

BAR = 90
"""Percent of the lines of each module."""


def read(path):
    """file -> line -> how often it ran"""
    files = defaultdict(lambda: defaultdict(int))
    for record in path.read_text().splitlines():
        kind, _, rest = record.partition(":")
        if kind == "SF":
            lines = files[str(Path(rest).relative_to(Path.cwd()))]
        elif kind == "DA":
            number, count = map(int, rest.split(",")[:2])
            lines[number] += count
    return files


def ranges(numbers, lines):
    """Uncovered lines as `3-5 9`; lines without code between them do not part a range."""
    parts, code = [], sorted(lines)
    for number in sorted(numbers):
        if parts and not any(parts[-1][1] < other < number for other in code):
            parts[-1][1] = number
        else:
            parts.append([number, number])
    return " ".join(f"{first}" if first == last else f"{first}-{last}" for first, last in parts)


def main():
    files = read(Path(sys.argv[1]))
    enough = True
    print(f"{'file':<40} {'lines':>6} {'run':>6} {'%':>6}  not run")
    for module in sys.argv[2:]:
        chosen = {name: lines for name, lines in sorted(files.items()) if re.match(rf"{module}(/|\.rs$)", name) and not re.search(r"/tests(/|\.rs$)", name)}
        total = run = 0
        for name, lines in chosen.items():
            missed = [number for number, count in lines.items() if not count]
            total, run = total + len(lines), run + len(lines) - len(missed)
            print(f"{name:<40} {len(lines):>6} {len(lines) - len(missed):>6} {100 * (1 - len(missed) / len(lines)):>6.1f}  {ranges(missed, lines)}")
        percent = 100 * run / total
        enough = enough and percent >= BAR
        print(f"{'= ' + module:<40} {total:>6} {run:>6} {percent:>6.1f}  {'' if percent >= BAR else f'below {BAR} %'}\n")
    sys.exit(not enough)


main()
