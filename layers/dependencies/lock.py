"""Writes requirements.lock for one runtime and architecture: exact versions, one hash each, from requirements.txt.

Run by `make lock` with the Python of that runtime. Asks pip what it would install and installs nothing; where
pip found a file is not written down, so the lock works with any index.
"""

import json
import subprocess
import sys
from pathlib import Path

REQUIREMENTS = Path(__file__).with_name("requirements.txt")


def locked(pip_platform: list[str]) -> str:
    """The text of the lock for pip's `--platform` options."""
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--only-binary=:all:", "--requirement", REQUIREMENTS]
    dry_run = ["--dry-run", "--ignore-installed", "--report", "-", "--target", "unused"]
    answer = subprocess.run([*pip, *dry_run, *pip_platform], check=True, stdout=subprocess.PIPE)
    report = json.loads(answer.stdout)
    lines = ["# Written by `make lock` from ../requirements.txt."]
    for package in sorted(report["install"], key=lambda package: package["metadata"]["name"].lower()):
        metadata, hashes = package["metadata"], package["download_info"]["archive_info"]["hashes"]
        lines.append(f"{metadata['name'].lower()}=={metadata['version']} --hash=sha256:{hashes['sha256']}")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.stdout.write(locked(sys.argv[1:]))
