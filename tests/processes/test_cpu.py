"""The type of processor, as a reader of a result needs it."""

import torch

from fedlama.processes.cpu import cpu_type
from fedlama.run.resolve import versions


def test_the_kernel_names_the_processor(tmp_path, monkeypatch):
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc" / "cpuinfo").write_text(
        "processor\t: 0\nmodel name\t: A  Great\x1b Processor @ 3 GHz\n"
    )
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "AVX2")
    name = cpu_type(tmp_path)
    assert name.endswith("Processor @ 3 GHz, AVX2")
    assert name.isprintable()
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "DEFAULT")
    assert cpu_type(tmp_path).endswith("3 GHz")


def test_without_the_kernels_file_there_is_still_a_type(tmp_path):
    assert cpu_type(tmp_path)


def test_runs_record_it():
    assert versions()["cpu"] == cpu_type()
