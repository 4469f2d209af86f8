"""Logs of nccl-tests in every layout that people paste.

The logs beside this file were written for these tests from the layouts of nccl-tests 1.0 to 2.18,
rccl-tests and mscclpp-test; their times follow one latency and one bandwidth, give or take 1.5 %.
"""

from collections import Counter
from pathlib import Path

import pytest

from zeroplan.calibration.nccl_tests import parse_log

LOGS = Path(__file__).parent / "logs"
SIZES = 11
"""1 MiB to 1 GiB, by factors of two."""

A100, H100 = "NVIDIA A100-SXM4-80GB", "NVIDIA H100 80GB HBM3"


def log(name: str) -> str:
    return (LOGS / f"{name}.log").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("name", "collective", "gpu", "nodes", "ranks_per_node"),
    [
        ("all_reduce_2_13_one_node", "all_reduce", A100, 1, 8),
        ("all_gather_2_16_started_by_name", "all_gather", H100, 1, 8),
        ("reduce_scatter_mpi_two_nodes", "reduce_scatter", H100, 2, 8),
        ("old_all_reduce_float_error", "all_reduce", "Tesla V100-SXM2-32GB", 1, 8),
        ("old_all_gather_rate_without_own_share", "all_gather", A100, 2, 8),
        ("no_validation", "all_reduce", "NVIDIA GH200 120GB", 4, 4),
        ("broadcast_with_root", "broadcast", A100, 1, 8),
        ("rccl_mi300x", "all_reduce", "AMD Instinct MI300X", 1, 8),
        ("kubernetes_prefixed_and_coloured", "reduce_scatter", "NVIDIA H200", 1, 8),
        ("in_place_first_mscclpp_layout", "all_gather", A100, 1, 8),
        ("timestamps_2_18", "reduce_scatter", "NVIDIA H200", 1, 8),
        ("version_1_in_milliseconds", "all_reduce", "Tesla V100-SXM2-16GB", 1, 8),
        ("folded_at_80_columns", "all_gather", "NVIDIA L40S", 1, 4),
        ("docker_json_log", "all_reduce", "NVIDIA B200", 1, 8),
        ("open_mpi_5_tags_four_nodes", "all_gather", H100, 4, 8),
        ("pcie_box_two_gpus", "all_reduce", "NVIDIA GeForce RTX 3090", 1, 2),
    ],
)
def test_a_log_gives_every_row_twice(
    name: str, collective: str, gpu: str, nodes: int, ranks_per_node: int
) -> None:
    found = parse_log(log(name))
    assert not found.notes
    assert Counter(row.in_place for row in found.rows) == {False: SIZES, True: SIZES}
    assert {(row.collective, row.gpu) for row in found.rows} == {(collective, gpu)}
    assert {(row.nodes, row.ranks_per_node) for row in found.rows} == {(nodes, ranks_per_node)}
    assert {row.ranks for row in found.rows} == {nodes * ranks_per_node}
    assert max(row.message_bytes for row in found.rows) == 2**30


def test_a_time_is_read_in_microseconds_from_its_own_half() -> None:
    first, second = parse_log(log("in_place_first_mscclpp_layout")).rows[:2]
    assert (first.in_place, second.in_place) == (True, False)
    line = next(
        x for x in log("in_place_first_mscclpp_layout").splitlines() if x.split()[0] == "1048576"
    )
    assert [first.seconds * 1e6, second.seconds * 1e6] == pytest.approx(
        [float(line.split()[2]), float(line.split()[6])]
    )


def test_a_half_that_was_not_run_is_left_out() -> None:
    found = parse_log(log("alltoall_without_in_place"))
    assert [row.in_place for row in found.rows] == [False] * SIZES
    assert not found.notes


def test_several_runs_in_one_log_are_told_apart() -> None:
    found = parse_log(log("three_runs_in_one_log"))
    runs = {"all_gather": 2 * SIZES, "all_reduce": 2 * SIZES, "reduce_scatter": 2 * SIZES}
    assert Counter(row.collective for row in found.rows) == runs
    assert {row.ranks for row in found.rows} == {16}
    assert not found.notes


@pytest.mark.parametrize(
    "name", ["all_reduce_2_13_one_node", "reduce_scatter_mpi_two_nodes", "no_validation"]
)
def test_without_the_program_s_name_the_bandwidths_tell_the_collective(name: str) -> None:
    lines = [x for x in log(name).splitlines() if "_perf" not in x]
    named, unnamed = parse_log(log(name)), parse_log("\n".join(lines))
    assert [row.collective for row in unnamed.rows] == [row.collective for row in named.rows]


def test_runs_on_different_numbers_of_nodes_are_told_apart() -> None:
    found = parse_log(log("srun_labels_two_sizes"))
    assert Counter((row.nodes, row.ranks) for row in found.rows) == {
        (2, 16): 2 * SIZES,
        (4, 32): 2 * SIZES,
    }
    assert not found.notes


@pytest.mark.parametrize("name", ["timestamps_2_18", "version_1_in_milliseconds"])
def test_times_and_rates_of_a_row_belong_together(name: str) -> None:
    """Two words of a time stamp after the last column, and milliseconds, change no figure."""
    found = parse_log(log(name))
    rows = [x.split() for x in log(name).splitlines() if x.split()[:1] == [str(2**30)]]
    (cells,) = rows
    at = 4 if name.startswith("version_1") else 5
    per_second = 1e3 if name.startswith("version_1") else 1e6
    measured = [row.seconds * per_second for row in found.rows if row.message_bytes == 2**30]
    assert measured == pytest.approx([float(cells[at]), float(cells[at + 4])])


def test_a_list_of_devices_that_was_cut_is_no_smaller_job() -> None:
    """Long lists end in "..."; the bandwidths tell that more ranks ran."""
    found = parse_log(log("list_of_devices_cut"))
    assert not found.rows
    assert "which 4 ranks do not give" in found.notes[0]


def test_a_log_that_ends_in_a_row_keeps_those_before_it() -> None:
    found = parse_log(log("cut_in_a_row"))
    assert sorted({row.message_bytes for row in found.rows}) == [2**k for k in range(20, 26)]


def without(text: str, word: str) -> str:
    return "\n".join(line for line in text.splitlines() if word not in line)


ONE_NODE = log("all_reduce_2_13_one_node")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "no table"),
        ("NCCL INFO Bootstrap : Using eth0\n", "no table"),
        (without(ONE_NODE, "Rank"), "number of ranks"),
        (ONE_NODE.replace("Rank  1", "Rank  0"), "MPI=1"),
        (ONE_NODE.replace("on      node1 device  7", "on      node2 device  7"), "unevenly"),
        (ONE_NODE.replace("all_reduce_perf", "sendrecv_perf"), "sendrecv_perf is not modelled"),
        (ONE_NODE.replace("   time   algbw", "cputime   algbw"), "cputime"),
        (ONE_NODE.replace("Rank  7 Pid", "Rank  7 Group  1 Pid"), "several groups"),
    ],
)
def test_what_cannot_be_told_is_left_out_and_noted(text: str, words: str) -> None:
    found = parse_log(text)
    assert not found.rows
    assert len(found.notes) == 1
    assert words in found.notes[0]


def test_times_in_another_unit_than_the_bandwidths_are_noted() -> None:
    """The first version of nccl-tests printed milliseconds."""
    lines = []
    for line in ONE_NODE.splitlines():
        cells = line.split()
        if cells and cells[0].isdecimal():
            cells[5] = f"{float(cells[5]) / 1000:.3f}"
        lines.append(" ".join(cells))
    found = parse_log("\n".join(lines))
    assert {row.in_place for row in found.rows} == {True}
    assert len(found.notes) == SIZES
    assert "another unit" in found.notes[0]


def test_a_cut_table_keeps_its_whole_rows() -> None:
    head, _, _ = ONE_NODE.partition("   268435456 ")
    found = parse_log(head + "   268435456      67108864     float")
    assert max(row.message_bytes for row in found.rows) == 2**27
