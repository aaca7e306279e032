"""Build the sdist, the wheel from the sdist, and try the wheel in an empty environment.

Run it with ``python -m tools.wheel``; both are left in ``dist/``.
"""

import shutil
import subprocess
import sys
import time
import zipfile
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).resolve().parents[1]
DIST = ROOT / "dist"
MOST_BYTES = 1_000_000
COMMANDS = (
    ("vepm", "--version"),
    ("python", "-m", "vepm", "--version"),
    ("vepm", "--show-completion", "bash"),
    ("vepm", "train", "--help"),
    ("vepm", "communities", "KarateClub", "--output", "karate"),
)


def run(*words: str | Path, folder: Path = ROOT) -> None:
    """Run a command, and stop if it fails."""
    started = time.monotonic()
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, check=False)
    print(f"{time.monotonic() - started:5.1f} s  {' '.join(map(str, words[-4:]))}", flush=True)
    if done.returncode:
        raise SystemExit(done.stdout + done.stderr)


def build() -> Path:
    """The wheel, made from the sdist."""
    shutil.rmtree(DIST, ignore_errors=True)
    run(sys.executable, "-m", "hatchling", "build", "--target", "sdist", "--directory", DIST)
    (source,) = DIST.glob("vepm-*.tar.gz")
    pip = (sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation")
    run(*pip, "--wheel-dir", DIST, source)
    (wheel,) = DIST.glob("vepm-*.whl")
    return wheel


def check(wheel: Path) -> None:
    """Refuse a wheel that is too large or holds what is not part of the package."""
    with zipfile.ZipFile(wheel) as file:
        names = file.namelist()
    tops = {name.split("/")[0] for name in names if ".dist-info" not in name}
    if tops != {"vepm", "vepm_command.py"} or "vepm/py.typed" not in names:
        raise SystemExit(f"the wheel holds {sorted(tops)}, or no py.typed")
    if wheel.stat().st_size > MOST_BYTES:
        raise SystemExit(f"the wheel has {wheel.stat().st_size:,} bytes, over {MOST_BYTES:,}")


def install_and_try(wheel: Path) -> None:
    """Install the wheel and nothing else, with the pinned packages, and run commands."""
    with TemporaryDirectory() as name:
        folder = Path(name)
        run(sys.executable, "-m", "venv", folder / "venv")
        programs = folder / "venv" / "bin"
        pip = (programs / "pip", "install", "--quiet", "-c", ROOT / "constraints.txt")
        # The same build of PyTorch as in the development environment.
        run(*pip, "torch")
        run(*pip, wheel)
        for program, *words in COMMANDS:
            run(programs / program, *words, folder=folder)


if __name__ == "__main__":
    found = build()
    check(found)
    install_and_try(found)
    print(f"{found.name}: {found.stat().st_size:,} bytes")
