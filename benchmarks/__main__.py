"""`python benchmarks NAME [options]`: run one benchmark; without a name, list them."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

FOLDER = Path(__file__).parent


def main() -> int:
    """Run the named program with the remaining arguments; its exit code is ours."""
    programs = {path.stem: path for path in sorted(FOLDER.glob("*.py")) if not path.stem.startswith("_")}
    if len(sys.argv) > 1 and sys.argv[1] in programs:
        return subprocess.call([sys.executable, str(programs[sys.argv[1]]), *sys.argv[2:]])
    for name, path in programs.items():
        print(f"{name:<16} {(ast.get_docstring(ast.parse(path.read_text())) or '').splitlines()[0]}")
    return 0 if len(sys.argv) == 1 else 2


if __name__ == "__main__":
    sys.exit(main())
