"""Each row of an nccl-tests sweep is timed as `comm` times it."""

import csv
from pathlib import Path

import pytest

from zeroplan.backtesting import Backtest, backtest_collectives
from zeroplan.backtesting.record import Score
from zeroplan.errors import SpecError

MIB = 2**20

ROW = {
    "id": "c-1",
    "source": "log",
    "fabric": "infiniband",
    "collective": "all_gather",
    "gpu": "h100-sxm5-80gb",
    "n_gpus": "16",
    "gpus_per_node": "8",
    "n_nodes": "2",
    "intra_link": "NVLink4",
    "inter_link": "8x400 NDR InfiniBand",
    "message_bytes": str(256 * MIB),
    "in_place": "yes",
    "time_us": "1000",
}


def _backtest(folder: Path, **changes: str) -> Backtest:
    path = folder / "sweep.csv"
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(ROW))
        writer.writeheader()
        writer.writerow(ROW | changes)
    return backtest_collectives(path)


def _score(folder: Path, **changes: str) -> Score:
    (score,) = _backtest(folder, **changes).rows
    return score


def test_a_row_is_grouped_by_fabric_collective_and_size(tmp_path: Path) -> None:
    result = _backtest(tmp_path)
    (summary,) = result.to_dict()["summary"]
    assert list(summary.items())[:4] == [
        ("fabric", "infiniband"),
        ("collective", "all_gather"),
        ("size_class", "16-256MiB"),
        ("metric", "seconds"),
    ]
    (score,) = result.rows
    assert (score.source_id, score.measured) == ("log", 1e-3)


@pytest.mark.parametrize(
    ("message", "size_class"),
    [
        (1024, "<=1MiB"),
        (MIB, "<=1MiB"),
        (MIB + 1, "1-16MiB"),
        (16 * MIB, "1-16MiB"),
        (256 * MIB, "16-256MiB"),
        (256 * MIB + 1, ">256MiB"),
    ],
)
def test_a_size_class_includes_its_upper_end(tmp_path: Path, message: int, size_class: str) -> None:
    assert _score(tmp_path, message_bytes=str(message)).group["size_class"] == size_class


def test_a_message_is_the_whole_that_is_gathered_or_reduced(tmp_path: Path) -> None:
    gather, scatter, reduce = (
        _score(tmp_path, collective=name, n_nodes="4", n_gpus="32").predicted
        for name in ("all_gather", "reduce_scatter", "all_reduce")
    )
    assert gather == scatter
    assert 1.6 < reduce / gather < 2.2


def test_two_nodes_reduce_through_a_tree_which_passes_every_byte_once(tmp_path: Path) -> None:
    gather, reduce = (
        _score(tmp_path, collective=name, inter_link="2x400 NDR InfiniBand").predicted
        for name in ("all_gather", "all_reduce")
    )
    assert reduce < 1.2 * gather


def test_the_trays_of_one_nvlink_domain_are_one_node(tmp_path: Path) -> None:
    racks = {"n_gpus": "144", "gpus_per_node": "4", "n_nodes": "36", "gpu": "gb200"}
    (score,) = _backtest(tmp_path, **racks, intra_link="NVL72").rows
    trays = _score(tmp_path, **racks, intra_link="NVLink5")
    assert score.predicted < trays.predicted


def test_sockets_carry_no_more_than_their_host_does(tmp_path: Path) -> None:
    one, eight = (
        _score(tmp_path, fabric="tcp", inter_link=f"{nics}x200 Ethernet").predicted
        for nics in (1, 8)
    )
    assert one == eight


def test_a_prediction_has_a_band(tmp_path: Path) -> None:
    score = _score(tmp_path)
    assert score.low is not None
    assert score.high is not None
    assert score.low < score.predicted < score.high
    assert (score.predicted / score.low) == pytest.approx(score.high / score.predicted)


def test_a_row_s_own_nics_carry_it(tmp_path: Path) -> None:
    eight = _score(tmp_path).predicted
    two = _score(tmp_path, inter_link="2x400 NDR InfiniBand").predicted
    assert 3 < two / eight < 5


def test_a_link_is_found_by_its_words_and_its_rate(tmp_path: Path) -> None:
    tcpxo, tcpx = (
        _score(tmp_path, fabric="gpudirect_tcpx", inter_link=f"8x200 GPUDirect-{name}").predicted
        for name in ("TCPXO", "TCPX")
    )
    assert tcpxo < tcpx


def test_an_out_of_place_gather_copies_its_shard_as_well(tmp_path: Path) -> None:
    inside, outside = (_score(tmp_path, in_place=word).predicted for word in ("yes", "no"))
    assert inside < outside < 1.2 * inside
    assert _score(tmp_path, collective="all_reduce", in_place="no") == _score(
        tmp_path, collective="all_reduce"
    )


def test_pcie_is_measured_where_the_gpu_usually_has_nvlink(tmp_path: Path) -> None:
    node = {"n_gpus": "8", "n_nodes": "1", "inter_link": ""}
    nvlink = _score(tmp_path, fabric="nvlink", **node).predicted
    pcie = _score(tmp_path, fabric="pcie", intra_link="PCIe Gen4", **node).predicted
    assert pcie > 5 * nvlink


def test_what_a_row_leaves_open_is_listed(tmp_path: Path) -> None:
    score = _score(tmp_path, n_nodes="", gpus_per_node="", fabric="nvlink")
    assert score.filled_in == ("n_nodes", "gpus_per_node")
    assert _score(tmp_path, inter_link="").filled_in == ("inter_link",)


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"fabric": "unknown"}, "fabric 'unknown' is not known."),
        ({"gpu": ""}, "gpu '' is not known."),
        ({"collective": "all-gather"}, "collective 'all-gather' is not modelled. Perhaps"),
        ({"time_us": ""}, "time_us is blank"),
        ({"time_us": "0"}, "time_us = '0' is not a number above 0"),
        ({"message_bytes": "1M"}, "message_bytes = '1M' is not a whole number of 1 or more"),
    ],
    ids=str,
)
def test_a_row_that_cannot_be_timed_is_skipped_with_its_reason(
    tmp_path: Path, changes: dict[str, str], why: str
) -> None:
    (skip,) = _backtest(tmp_path, **changes).skipped
    assert skip.why.startswith(why)


def test_a_table_of_runs_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "runs.csv"
    path.write_text("id,strategy\n1,ddp\n", encoding="utf-8")
    with pytest.raises(SpecError, match="no column 'fabric'"):
        backtest_collectives(path)


@pytest.mark.published
def test_a_large_all_gather_in_a_node_is_met_within_5_percent(tmp_path: Path) -> None:
    """ai-dynamo/aiconfigurator, 095f58a51c: h100_sxm/comm/nccl/2.29.2/nccl_perf.parquet."""
    score = _score(
        tmp_path,
        fabric="nvlink",
        n_gpus="8",
        n_nodes="1",
        message_bytes=str(512 * MIB),
        in_place="no",
        time_us="1401.5",
    )
    assert abs(score.error_fraction) < 0.05
