"""Peak memory of a part of a process."""

from pathlib import Path

import torch

from vepm.runs import peak_memory


class PeakMemory:
    """Peak memory between now and :meth:`read`, in bytes above what is in use now."""

    def __init__(self, device: str = "cpu") -> None:
        self.cuda = device == "cuda"
        if self.cuda:
            torch.cuda.synchronize()
            torch.cuda.reset_peak_memory_stats()
            self.before = torch.cuda.memory_allocated()
            return
        self.before = _status("VmRSS")
        try:
            Path("/proc/self/clear_refs").write_text("5")
        except OSError:
            # The peak cannot be reset here: that of the whole process is all there is.
            self.before = 0

    def read(self) -> int:
        """Bytes."""
        peak = torch.cuda.max_memory_allocated() if self.cuda else _status("VmHWM")
        return max(peak - self.before, 0)


def _status(name: str) -> int:
    status = Path("/proc/self/status")
    if not status.exists():
        return int(peak_memory()["peak_memory_mib"] * 2**20)
    return int(status.read_text().split(f"{name}:")[1].split()[0]) * 1024
