"""FedLAMA as the paper tells it, naively: the slow readable twin of `fedlama.simulate`.

One copy of the module a client, one optimizer a client, dictionaries by tensor name, one step at a time. It shares no
code with the package; the draws (who trains, on which batches) come in as functions, so that both see the same ones.
"""

from copy import deepcopy
from fractions import Fraction

import torch
from torch.nn.functional import cross_entropy


def fedlama(
    model,
    *,
    batch,
    cohort,
    samples,
    base_interval,
    increase_factor,
    iterations,
    window,
    learning_rate,
    momentum,
    decay,
    fails_before=lambda client, step: False,
    fate=lambda client, first, last: None,
):
    """Train `model` in place with `batch(client, step)` and `cohort(window)`; what happened, round by round.

    `samples[client]` is what a client weighs in the average. Every trainable tensor is a layer, kernels are adaptive.
    `fails_before(client, step)` tells of the cycle that begins after `step` steps; `fate` of the round with these
    steps: None, "silent" if the client sends nothing, "refused" if what it sends does not count.
    """
    sizes = {name: tensor.numel() for name, tensor in model.named_parameters()}
    kernels = [name for name, tensor in model.named_parameters() if tensor.dim() >= 2]
    statistics = [name for name, _ in model.named_buffers() if "running" in name]
    statistics_bytes = sum(4 * model.state_dict()[name].numel() for name in statistics)
    intervals = dict.fromkeys(sizes, base_interval)
    averaged_at = dict.fromkeys(sizes, 0)
    kappa = dict.fromkeys(sizes, 0)
    cycle = base_interval * increase_factor
    rounds, losses, discrepancy, first = [], {}, {}, 0
    fresh = []  # the layers averaged after the round before
    for step in range(iterations):
        # A cohort enters: it gets the whole model and has no momentum
        if step % window == 0:
            clients, copies, optimizers = cohort(step // window), {}, {}
        if step % cycle == 0:  # whoever was left out comes back as if new
            there = [client for client in clients if not fails_before(client, step)]
            copies = {client: copies.get(client) or deepcopy(model) for client in there}
            optimizers = {
                client: optimizers.get(client)
                or torch.optim.SGD(
                    copy.parameters(), learning_rate, momentum, weight_decay=decay
                )
                for client, copy in copies.items()
            }
        if step == first:
            # At a cycle's start every layer is new to everyone
            sent = sizes if step % cycle == 0 else fresh
            down = len(copies) * (
                sum(4 * sizes[name] for name in sent) + statistics_bytes
            )
            losses = {client: [] for client in copies}

        for client, copy in copies.items():
            inputs, targets = batch(client, step)
            loss = cross_entropy(copy(inputs), targets)
            optimizers[client].zero_grad()
            loss.backward()
            optimizers[client].step()
            losses[client].append(loss.item())

        done = step + 1  # steps taken
        all_due = done % cycle == 0 or done == iterations
        due = [name for name in sizes if all_due or done % cycle % intervals[name] == 0]
        if not due:
            continue
        fates = {client: fate(client, first, done) for client in copies}
        senders = sum(what != "silent" for what in fates.values())
        copies = {
            client: copy for client, copy in copies.items() if fates[client] is None
        }
        optimizers = {client: optimizers[client] for client in copies}
        weights = {client: samples[client] for client in copies}
        weights = {
            client: weight / sum(weights.values()) for client, weight in weights.items()
        }
        states = {client: copy.state_dict() for client, copy in copies.items()}
        for name in due + statistics:
            mean = sum(
                weights[client] * states[client][name].double() for client in states
            ).float()
            if name in sizes:  # Eq. 2, before the local copies are overwritten
                squares = sum(
                    weights[client]
                    * float(
                        ((mean.double() - states[client][name].double()) ** 2).sum()
                    )
                    for client in states
                )
                discrepancy[name] = squares / ((done - averaged_at[name]) * sizes[name])
                averaged_at[name] = done
                kappa[name] += 1
            for state in (model.state_dict(), *states.values()):
                state[name].copy_(mean)
        rounds.append(
            {
                "step": done,
                "due": due,
                "intervals": list(intervals.values()),
                "discrepancy": [
                    discrepancy[name] if name in due else None for name in sizes
                ],
                "loss": sum(
                    weights[client] * sum(losses[client]) / len(losses[client])
                    for client in copies
                ),
                "up": senders
                * (sum(4 * sizes[name] for name in due) + statistics_bytes),
                "down": down,
                "averaged": list(copies),
            }
        )
        first, fresh = done, due
        if done % cycle == 0 and any(discrepancy.values()):
            long = lengthened(kernels, discrepancy, sizes)
            intervals = {
                name: cycle if name in long else base_interval for name in sizes
            }
    cost = sum(sizes[name] * kappa[name] for name in sizes)
    return {
        "rounds": rounds,
        "intervals": intervals,
        "aggregations": kappa,
        "cost": cost,
    }


def lengthened(kernels, discrepancy, sizes):
    """Algorithm 2: walk up the kernels by d_l, up to and including the first at which 1 − λ_l < δ_l."""
    total_d = sum(Fraction(discrepancy[name]) * sizes[name] for name in sizes)
    total_n = sum(sizes.values())
    long = []
    for name in sorted(kernels, key=lambda name: discrepancy[name]):
        long.append(name)
        delta = (
            sum(Fraction(discrepancy[name]) * sizes[name] for name in long) / total_d
        )
        if 1 - Fraction(sum(sizes[name] for name in long), total_n) < delta:
            break
    return long


def by_plan(model, *, batch, cohort, window, rounds, learning_rate, momentum=0.0):
    """Train `model` in place by a plan: any policy's rounds, one copy of the module per client.

    A round is a dictionary: `steps`, the names of the layers `due`, those that are `recycled` (the model takes its last
    change of them once more) and those that are `trained`. Every client weighs the same. What each round measured of
    the layers: (‖change‖², ‖value before‖²).
    """
    names = [name for name, _ in model.named_parameters()]
    last = {}  # the last averaged change
    measured = []
    step = 0
    for one in rounds:
        if step % window == 0:
            clients = cohort(step // window)
            copies = {client: deepcopy(model) for client in clients}
            velocities = {client: dict.fromkeys(names, 0.0) for client in clients}
        for _ in range(one["steps"]):
            for client, copy in copies.items():
                inputs, targets = batch(client, step)
                gradients = torch.autograd.grad(
                    cross_entropy(copy(inputs), targets), list(copy.parameters())
                )
                with torch.no_grad():
                    for (name, tensor), gradient in zip(
                        copy.named_parameters(), gradients, strict=True
                    ):
                        if name in one["trained"]:
                            velocities[client][name] = (
                                momentum * velocities[client][name] + gradient
                            )
                            tensor.sub_(learning_rate * velocities[client][name])
            step += 1
        shown = {}
        for name in [*one["due"], *one["recycled"]]:
            before = model.state_dict()[name].clone()
            if name in one["due"]:
                mean = sum(
                    copy.state_dict()[name].double() for copy in copies.values()
                ) / len(copies)
                last[name] = mean.float() - before
            shown[name] = (
                float(last[name].double().square().sum()),
                float(before.double().square().sum()),
            )
            for state in (
                model.state_dict(),
                *(copy.state_dict() for copy in copies.values()),
            ):
                state[name].copy_(before + last[name])
        measured.append(shown)
    return measured
