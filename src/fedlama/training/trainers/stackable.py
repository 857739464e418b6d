"""Whether a training can be stacked at all: one pass over a stack must be every client's own computation."""

from __future__ import annotations

from torch import nn
from torch.nn.functional import cross_entropy

from fedlama.data import Dataset
from fedlama.training.trainers.layers import why_not_stackable

# Where torch keeps the hooks of a module
HOOKS_OF_MODULES = (
    "_forward_hooks",
    "_forward_pre_hooks",
    "_backward_hooks",
    "_backward_pre_hooks",
)


def can_stack(
    module: nn.Module, data: Dataset, loss: object, precision: str
) -> str | None:
    """None if this training can be stacked, otherwise the reason why not.

    Arguments:
        module: What is trained.
        data: What it is trained on.
        loss: The loss.
        precision: Of local steps.
    """
    for part in module.modules():
        reason = why_not_stackable(part)
        if reason is not None:
            return reason
    every_path = list(module.named_modules(remove_duplicate=False))
    different_modules = list(module.modules())
    if len(every_path) != len(different_modules):
        return "a module is used twice"
    if list(module.buffers()):
        return "it has buffers"
    if _has_hooks(module):
        return "it has hooks"
    if loss is not cross_entropy:
        return "the loss is not the default one"
    if data.y_train.dim() != 1 or data.y_train.is_floating_point():
        return "targets are not one class per sample"
    if precision != "float32":
        return "the precision is not float32"
    if data.augment is not None:
        return "training images are augmented"
    if any(not parameter.requires_grad for parameter in module.parameters()):
        return "some parameters are frozen"
    return None


def _has_hooks(module: nn.Module) -> bool:
    """A hook is code of the user's own, and it would see a stack where it expects a batch."""
    hooks: list[object] = []
    for part in module.modules():
        for name in HOOKS_OF_MODULES:
            hooks.append(getattr(part, name))
    for parameter in module.parameters():
        hooks.append(parameter._backward_hooks)
        hooks.append(parameter._post_accumulate_grad_hooks)
    return any(hooks)
