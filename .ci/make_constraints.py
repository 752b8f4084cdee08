"""Write constraints.txt anew: what setup installs, with the SHA-256 of every file of each release.

    python .ci/make_constraints.py WHEELS     # needs uv

Versions that are there stay; remove lines, or the file, to have newer ones. WHEELS is a folder with
the CPU build of torch, which needs no CUDA packages. Its hash stands beside those of the release.
"""

import re
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent.parent
PLACE = HERE / "constraints.txt"
HEAD = "# The exact versions that make and CI install, by .ci/make_constraints.py.\n"
TORCH = re.compile(r"^torch==(\d[\d.]*).*\\\n((?:    --hash=.*\n)+)", re.MULTILINE)


def compiled(*words: str, given: str) -> str:
    run = ["uv", "pip", "compile", "-", "--generate-hashes", "--no-annotate", "--no-header"]
    end = subprocess.run(
        [*run, *words], cwd=HERE, input=given, text=True, stdout=subprocess.PIPE, check=True
    )
    return end.stdout


def main() -> None:
    wheels = ("--find-links", sys.argv[1])
    keep = ("--constraints", PLACE.name) if PLACE.exists() else ()
    every = ("pyproject.toml", "--all-extras", "--universal", "--python-version", "3.11")
    found = compiled(*every, *wheels, *keep, given="setuptools\n")  # builds the package
    version, _ = TORCH.findall(found)[0]
    both = found + compiled("--no-deps", given=f"torch=={version}\n")
    hashes = set(re.findall(r"--hash=\S+", "".join(block for _, block in TORCH.findall(both))))
    torch = f"torch=={version} \\\n    " + " \\\n    ".join(sorted(hashes)) + "\n"
    others = TORCH.sub("", found)
    PLACE.write_text(HEAD + others.replace("\ntqdm==", f"\n{torch}tqdm==", 1))


if __name__ == "__main__":
    main()
