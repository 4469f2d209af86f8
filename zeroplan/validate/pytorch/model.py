"""The module that stands for the model: zeroplan's own."""

from zeroplan.schedule.plan import Plan
from zeroplan.spec.architecture import Architecture
from zeroplan.validate.pytorch.decoder import Decoder
from zeroplan.validate.pytorch.environment import DTYPES
from zeroplan.validate.pytorch.subject import Subject

__all__ = ["own"]


def own(model: Architecture, plan: Plan) -> Subject:
    """Build zeroplan's own module."""
    batch = plan.workload.batch
    module = Decoder(model, batch, DTYPES[batch.dtype])
    return Subject(
        module=module,
        embeddings=(module.embeddings,),
        blocks=(module.blocks,),
        tail=(module.norm, module.head),
        tied=module.head.weight is module.embeddings.weight,
    )
