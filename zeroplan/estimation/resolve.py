"""Fill a run's defaults in: those that depend on the model, the hardware and each other."""

from pathlib import Path

from zeroplan.comm.fabric import Fabric, fabric
from zeroplan.errors import SpecError
from zeroplan.estimation.hypothetical import hypothetical_notes
from zeroplan.hardware import Catalogue, Gpu, load_catalogue, usual_link
from zeroplan.records import dataclass, replace
from zeroplan.sharding.groups import Groups, groups
from zeroplan.sharding.obstacles import able, left_out
from zeroplan.sharding.offload import offload_notes
from zeroplan.sharding.optimizers import optimizer_notes
from zeroplan.sharding.strategies import COMPARED, STRATEGIES, Sharding, sharding
from zeroplan.sharding.tuning import shards_quantized
from zeroplan.spec.applies import model_notes
from zeroplan.spec.architecture import Architecture
from zeroplan.spec.images import with_images
from zeroplan.spec.models import load_architecture
from zeroplan.spec.run import ClusterChoice, Run, Strategy, TrainingChoice
from zeroplan.spec.verify import verify

__all__ = [
    "DEFAULT_GPU",
    "Question",
    "elsewhere",
    "named_gpu",
    "one_node",
    "ranks_per_node",
    "resolve",
    "resolve_cluster",
    "strategy_groups",
]

DEFAULT_GPU = "h100-sxm5-80gb"
DEFAULT_SEQUENCE_LENGTH = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A run whose open keys are filled, with the model and the hardware it names."""

    run: Run
    architecture: Architecture
    gpu: Gpu
    wires: Fabric
    strategies: tuple[Sharding, ...]
    notes: tuple[str, ...]
    """What was chosen for the user, in words."""


def resolve(
    run: Run, profiles: Path | None = None, *, architecture: Architecture | None = None
) -> Question:
    """Load what a run names and choose what it leaves open.

    Parameters
    ----------
    run
        What is asked.
    profiles
        Folder whose hardware profiles come before the shipped ones.
    architecture
        The model, where it is known otherwise than by the run's `model.source`.

    Raises
    ------
    SpecError
        An unknown model, profile or strategy, or keys that contradict each other.
    """
    architecture = with_images(
        architecture or load_architecture(run.model.source),
        run.training.images_per_sequence,
        run.training.image_tokens,
    )
    catalogue = load_catalogue(profiles)
    cluster, gpu, wires = resolve_cluster(run.cluster, catalogue)
    training = _training(run.training, architecture)
    _verify_float8(training, gpu)
    filled = verify(replace(run, cluster=cluster, training=training))
    compared = _compared(filled)
    named = filled.sharding.strategy is not None
    unable = () if named else offload_notes(compared, filled.sharding)
    return Question(
        run=filled,
        architecture=architecture,
        gpu=gpu,
        wires=wires,
        strategies=able(
            tuple(row for row in compared if named or shards_quantized(row, filled)),
            filled.training,
            named=named,
        ),
        notes=(
            *architecture.assumptions,
            *model_notes(filled, architecture),
            *left_out(compared, filled.training),
            *optimizer_notes(filled.training.optimizer, compared),
            *unable,
            *_left_out(compared, filled),
            *(() if named else map(one_node, _pointless(filled))),
            *hypothetical_notes(cluster, gpu, wires, catalogue),
        ),
    )


def elsewhere(question: Question, cluster: ClusterChoice, profiles: Path | None) -> Question:
    """Return the same question on another machine, of which the model knows nothing.

    Raises
    ------
    SpecError
        The machine is not known, or cannot do what is asked.
    """
    filled, gpu, wires = resolve_cluster(cluster, load_catalogue(profiles))
    _verify_float8(question.run.training, gpu)
    run = verify(replace(question.run, cluster=filled))
    return replace(question, run=run, gpu=gpu, wires=wires)


def strategy_groups(row: Sharding, run: Run) -> Groups:
    """Form a strategy's groups: hsdp shards inside a node where nothing else is said."""
    gpus, per_node = run.cluster.gpus, _per_node(run.cluster)
    choice = run.sharding
    shard, secondary, two_levels = gpus, 1, False
    if row.framework in ("fsdp1", "fsdp2"):
        if choice.shard_size is not None:
            shard = choice.shard_size
        elif choice.replicate_size is not None and (row.replicates or row.framework == "fsdp1"):
            shard = gpus // choice.replicate_size
        elif row.replicates:
            shard = min(gpus, per_node)
    elif row.framework == "deepspeed" and row.divides_parameters:
        settings = choice.deepspeed
        shard = settings.mics_shard_size or gpus
        secondary = min(gpus, settings.zero_hpz_partition_size)
        hierarchical = settings.mics_shard_size and settings.mics_hierarchical_params_gather
        two_levels = bool(settings.zero_quantized_gradients or hierarchical)
    return groups(
        gpus=gpus,
        gpus_per_node=per_node,
        shard_size=shard,
        secondary_size=secondary,
        two_levels=two_levels,
    )


def _verify_float8(training: TrainingChoice, gpu: Gpu) -> None:
    if training.fp8 != "none" and "fp8" not in gpu.peak_flop_per_second:
        raise SpecError(
            f'training.fp8 = "{training.fp8}": {gpu.id} has no fp8; set it to "none", or name '
            "another cluster.gpu."
        )


def ranks_per_node(run: Run) -> int:
    """Return how many ranks share a host."""
    return min(run.cluster.gpus, _per_node(run.cluster))


def _per_node(cluster: ClusterChoice) -> int:
    return cluster.gpus_per_node or cluster.gpus


def _compared(run: Run) -> tuple[Sharding, ...]:
    named = run.sharding.strategy
    if named is not None:
        return (sharding(named),)
    pointless = _pointless(run)
    return tuple(STRATEGIES[each] for each in COMPARED if each not in pointless)


def _pointless(run: Run) -> tuple[Strategy, ...]:
    """Return the strategies that copy between nodes, where there is one."""
    several = run.cluster.gpus > _per_node(run.cluster)
    return () if several else tuple(each for each in COMPARED if STRATEGIES[each].replicates)


def one_node(strategy: Strategy) -> str:
    """Say why a strategy that copies between nodes is not compared on one."""
    return f"{strategy} left out: on one node there is nothing to replicate across nodes."


def _left_out(compared: tuple[Sharding, ...], run: Run) -> tuple[str, ...]:
    """Say which strategies cannot shard the quantised weights that are asked for."""
    named = ", ".join(row.strategy for row in compared if not shards_quantized(row, run))
    return (f"{named} left out: no sharding of these quantised weights.",) if named else ()


def _training(training: TrainingChoice, architecture: Architecture) -> TrainingChoice:
    if training.sequence_length is not None:
        return training
    longest = architecture.max_positions or DEFAULT_SEQUENCE_LENGTH
    return replace(training, sequence_length=min(DEFAULT_SEQUENCE_LENGTH, longest))


def named_gpu(gpu: str | None, node: str | None, catalogue: Catalogue) -> Gpu:
    """Return the GPU that is named, else that of the node, else the default."""
    return catalogue.gpu(gpu or (catalogue.node(node).gpu.value if node else DEFAULT_GPU))


def resolve_cluster(
    cluster: ClusterChoice, catalogue: Catalogue
) -> tuple[ClusterChoice, Gpu, Fabric]:
    """Load the hardware that a cluster names and choose what it leaves open."""
    node = catalogue.node(cluster.node) if cluster.node else None
    gpu = named_gpu(cluster.gpu, cluster.node, catalogue)
    if node is not None and node.gpu.value != gpu.id:
        raise SpecError(
            f"cluster.gpu = {gpu.id!r} does not stand in node {node.id!r}, which has "
            f"{node.gpu.value!r}: leave one of the two out."
        )
    source = node or gpu
    per_node = cluster.gpus_per_node or int((node.gpus if node else gpu.gpus_per_node).value)
    intra = usual_link(cluster.intra_link or source.intra_link.value, gpu, catalogue)
    inter = usual_link(cluster.link or source.node_link.value, gpu, catalogue)
    host = cluster.host_memory_bytes
    if host is None and node is not None and node.host_memory_bytes is not None:
        host = int(node.host_memory_bytes.value)
    filled = replace(
        cluster,
        host_memory_bytes=host,
        gpu=gpu.id,
        gpus_per_node=per_node,
        link=inter.id,
        intra_link=intra.id,
    )
    wires = fabric(
        intra=intra,
        inter=inter,
        gpus_per_node=per_node,
        node=node,
        gpu=gpu,
        oversubscription=cluster.oversubscription,
        backend=cluster.backend,
    )
    return filled, gpu, wires
