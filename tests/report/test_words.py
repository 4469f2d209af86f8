"""An answer in sentences says what fits, what is fastest and what it rests on."""

from dataclasses import replace

from zeroplan.estimation.record import Estimate
from zeroplan.report.words import assumptions, defaults, precisions, verdicts
from zeroplan.spec.toml import load_spec


def test_every_strategy_is_in_one_verdict(answer: Estimate) -> None:
    assert list(verdicts(answer))[:3] == ["Fits: fsdp2.", "Tight: zero3.", "Does not fit: ddp."]


def test_the_fastest_that_fits_comes_with_its_band_and_bound(answer: Estimate) -> None:
    assert list(verdicts(answer))[3] == (
        "Fastest that fits: fsdp2, 1.00 s per step (0.875 to 1.12 s), bound by compute; "
        "it waits 0.0938 s for communication."
    )


def test_the_fastest_may_be_tight_and_may_send_nothing(answer: Estimate) -> None:
    alone = replace(answer, estimates=answer.estimates[1:2])
    assert list(verdicts(alone))[1].startswith("Fastest that fits: zero3 (tight), 1.25 s per step")
    (zero3,) = alone.estimates
    silent = replace(zero3, communication=replace(zero3.communication, wire_bytes=0))
    (_, line) = verdicts(replace(answer, estimates=(silent,)))
    assert line.endswith("bound by compute.")


def test_where_nothing_fits_the_nearest_miss_is_named(nothing_fits: Estimate) -> None:
    assert list(verdicts(nothing_fits)) == [
        "Does not fit: ddp.",
        "Nothing fits. ddp is nearest: 53.0 GiB too big.",
    ]


def test_rows_that_store_another_dtype_are_told(answer: Estimate) -> None:
    (line,) = precisions(answer)
    assert line.startswith("DeepSpeed (zero3) stores bf16")
    assert list(precisions(replace(answer, estimates=answer.estimates[:1]))) == []


def test_without_times_nothing_is_called_fastest(answer: Estimate) -> None:
    untimed = tuple(
        replace(each, time=replace(each.time, step_seconds=None)) for each in answer.estimates
    )
    assert len(list(verdicts(replace(answer, estimates=untimed)))) == 3


def test_defaults_are_listed_as_resolved_and_what_was_asked_is_not(answer: Estimate) -> None:
    asked = load_spec(model="8b", gpus=64, link="ib", attention="math")
    lines = "\n".join(defaults(answer, asked))
    assert "training: sequence_length 4096, micro_batch_size 1" in lines
    assert "compile false" in lines
    assert "attention" not in lines
    assert "gpus 8" not in lines


def test_a_word_that_leaves_the_link_to_the_gpu_is_told_with_what_it_became(
    answer: Estimate,
) -> None:
    lines = list(defaults(answer, load_spec(model="8b", link="ib")))
    assert any("link ib-ndr400, the usual ib" in line for line in lines)
    named = list(defaults(answer, load_spec(model="8b", link="ib-ndr400")))
    assert not any("link ib-ndr400" in line for line in named)


def test_defaults_that_no_strategy_reads_are_left_out(answer: Estimate) -> None:
    asked = load_spec(model="8b")
    assert "bucket_bytes" in "\n".join(defaults(answer, asked))
    sharded = replace(answer, estimates=answer.estimates[2:])
    assert "bucket_bytes" not in "\n".join(defaults(sharded, asked))
    assert "sharding.deepspeed" not in "\n".join(defaults(sharded, asked))


def test_only_assumed_and_fitted_figures_are_listed(answer: Estimate) -> None:
    assert list(assumptions(answer)) == [
        "cuda_context_bytes 0.466 GiB (assumed: PyTorch issues 107667 and 109888)"
    ]
