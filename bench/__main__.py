"""`python -m bench compare A.json B.json`: is B better or worse than A?"""

import argparse
import sys
from pathlib import Path

from bench import report
from cluster_serving.node.commands.bench_text import comparison_table
from cluster_serving.node.load.compare import compared

_WIDTH = 80
_WORSE, _UNUSABLE = 1, 2


def main() -> None:
    """Print the table; exit code 1 where something is surely worse, 2 where a file cannot be used."""
    parser = argparse.ArgumentParser(prog="python -m bench", description="The other benches: python -m bench.NAME")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    command = commands.add_parser("compare", help="two result files, figure by figure", description=__doc__)
    command.add_argument("a", type=Path, metavar="A.json", help="before")
    command.add_argument("b", type=Path, metavar="B.json", help="after")
    command.add_argument(
        "--tolerance", type=float, default=0.05, help="a change by less is none (default: %(default)s)"
    )
    options = parser.parse_args()
    try:
        a, b = report.read(options.a), report.read(options.b)
    except ValueError as error:
        print(error, file=sys.stderr)
        sys.exit(_UNUSABLE)
    found = compared(a, b, options.tolerance)
    if not found:
        print(f"{options.a} and {options.b} have no figure in common: are they of the same bench?", file=sys.stderr)
        sys.exit(_UNUSABLE)
    print("\n".join(comparison_table(found).lines(_WIDTH)))
    print(f"rounds: A {len(a)}, B {len(b)}; tolerance {options.tolerance:.0%}")
    sys.exit(_WORSE if any(each.verdict == "worse" for each in found) else 0)


if __name__ == "__main__":
    main()
