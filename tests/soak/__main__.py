"""`python -m tests.soak --minutes 10`: a long run of good and bad invocations, and a short report."""

import argparse
import asyncio
import os
import sys

from tests.soak.soak import soak


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=0.2, help="how long (0.2)")
    parser.add_argument("--log", action="store_true", help="show the log of the function, with its errors on purpose")
    options = parser.parse_args()
    if not options.log:
        # Below Python, because the environments write there too.
        out = os.dup(1)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        sys.stdout = os.fdopen(out, "w")
    report = asyncio.run(soak(options.minutes * 60))
    print(report)
    sys.exit(not report.good)


if __name__ == "__main__":
    main()
