"""A page that its user does not wait for."""

import signal
import subprocess
import sys
from pathlib import Path

from cli.running import hidden_in

from .writing import write_node_run

SLOW = """
import signal, sys, time
# Whoever runs the tests in the background has interrupts ignored.
signal.signal(signal.SIGINT, signal.default_int_handler)
from vepm.report import style
draw_svg = style.draw_svg
def announced(*args):
    print("drawing", flush=True)
    time.sleep(0.5)
    return draw_svg(*args)
style.draw_svg = announced
from vepm.cli import main
main()
"""


def test_interrupt_while_the_page_is_written_leaves_the_old_one(tmp_path: Path) -> None:
    folder = write_node_run(tmp_path / "run", nodes=40)
    (folder / "report.html").write_text("the page of before")
    words = [sys.executable, "-c", SLOW, "report", str(folder)]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "drawing\n"
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 128 + signal.SIGINT
    assert "Traceback" not in err
    assert (folder / "report.html").read_text() == "the page of before"
    assert hidden_in(folder) == []
