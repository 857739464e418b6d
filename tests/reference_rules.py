"""Local and server rules as their papers tell them, naively: the slow readable twin of what `fedlama.simulate` does.

One copy of the module for each client, dictionaries by tensor name, sums written out. It shares no code with the
package; the draws (who trains, on which batches, at which pace) come in as functions, so that both see the same ones.
"""

import math
from copy import deepcopy

import torch
from torch.nn.functional import cross_entropy

from reference import lengthened


def federation(  # noqa: PLR0912 - one paper after the other, in the order of a round
    model,
    *,
    batch,
    cohort,
    samples,
    base_interval,
    increase_factor,
    iterations,
    window,
    rate,
    momentum=0.0,
    decay=0.0,
    local="sgd",
    mu=0.0,
    alpha=0.0,
    server="mean",
    beta=0.0,
    server_rate=1.0,
    nesterov=False,
    beta1=0.9,
    beta2=0.99,
    epsilon=1e-3,
    pace=lambda client, window: None,
    average_steps=None,
):
    """Train `model` in place; the rounds, what clients and server hold at the end, and the moving average.

    `samples[client]` is what a client weighs, `pace(client, window)` how many steps it takes per base interval (None:
    all of them). Every trainable tensor is a layer, kernels are adaptive.
    """
    population = len(samples)
    sizes = {name: tensor.numel() for name, tensor in model.named_parameters()}
    kernels = [name for name, tensor in model.named_parameters() if tensor.dim() >= 2]
    statistics = [name for name, _ in model.named_buffers() if "running" in name]
    statistics_bytes = sum(4 * model.state_dict()[name].numel() for name in statistics)
    cycle = base_interval * increase_factor
    intervals = dict.fromkeys(sizes, base_interval)
    averaged_at = dict.fromkeys(sizes, 0)
    zeros = {
        name: torch.zeros_like(tensor) for name, tensor in model.named_parameters()
    }
    # What a client keeps until it returns: c_i of SCAFFOLD, the gradient of FedDyn
    kept = {}
    held = {"c": deepcopy(zeros), "h": deepcopy(zeros), "m": deepcopy(zeros), "v": {}}
    average = None
    rounds, discrepancy, fresh, step = [], {}, [], 0
    while step < iterations:
        if step % window == 0:
            clients = cohort(step // window)
            copies = {client: deepcopy(model) for client in clients}
            velocity = {client: deepcopy(zeros) for client in clients}
            for client in clients:
                kept.setdefault(client, deepcopy(zeros))
        done = step + 1
        while not (due := due_after(done, cycle, intervals, iterations)):
            done += 1
        sent = fresh if step % window else list(sizes)
        per_layer = 8 if local == "scaffold" else 4  # c travels with the model
        down = len(clients) * (
            sum(per_layer * sizes[name] for name in sent) + statistics_bytes
        )

        anchor = {
            name: tensor.detach().clone() for name, tensor in model.named_parameters()
        }
        losses = {}
        for client in clients:
            numbers = local_steps(
                pace(client, step // window), base_interval, step, done
            )
            losses[client] = []
            for number in numbers:
                loss = cross_entropy(
                    copies[client](batch(client, number)[0]), batch(client, number)[1]
                )
                copies[client].zero_grad()
                loss.backward()
                losses[client].append(loss.item())
                with torch.no_grad():
                    for name, weight in copies[client].named_parameters():
                        gradient = weight.grad.clone()
                        if local == "fedprox":
                            gradient += mu * (weight - anchor[name])
                        if local == "scaffold":
                            gradient += held["c"][name] - kept[client][name]
                        if local == "feddyn":
                            gradient += (
                                alpha * (weight - anchor[name]) - kept[client][name]
                            )
                        gradient += decay * weight
                        velocity[client][name] = (
                            momentum * velocity[client][name] + gradient
                        )
                        weight.sub_(rate * velocity[client][name])

        weights = {
            client: samples[client] / sum(samples[one] for one in clients)
            for client in clients
        }
        for name in due:
            ends = {
                client: dict(copies[client].named_parameters())[name].detach().clone()
                for client in clients
            }
            apart = done - averaged_at[name]
            if local == "fednova":
                amounts = {}
                for client in clients:
                    count = len(
                        local_steps(
                            pace(client, step // window),
                            base_interval,
                            averaged_at[name],
                            done,
                        )
                    )
                    amounts[client] = how_far(count, momentum)
                per_step = {
                    client: (ends[client] - anchor[name]) / amounts[client]
                    for client in clients
                }
                ends = {
                    client: anchor[name] + how_far(apart, momentum) * per_step[client]
                    for client in clients
                }
            mean = sum(weights[client] * ends[client].double() for client in clients)
            squares = sum(
                weights[client] * float(((mean - ends[client]) ** 2).sum())
                for client in clients
            )
            discrepancy[name] = squares / (apart * sizes[name])
            mean = mean.float()
            if local == "fednova":
                effective = sum(weights[client] * amounts[client] for client in clients)
                mean = anchor[name] + effective * sum(
                    weights[client] * per_step[client] for client in clients
                )
            if local == "scaffold":
                changes = []
                for client in clients:
                    before = kept[client][name]
                    after = (
                        before
                        - held["c"][name]
                        + (anchor[name] - ends[client]) / (apart * rate)
                    )
                    changes.append(weights[client] * (after - before))
                    kept[client][name] = after
                held["c"][name] = held["c"][name] + len(clients) / population * sum(
                    changes
                )
            if local == "feddyn":
                moved = {client: ends[client] - anchor[name] for client in clients}
                for client in clients:
                    kept[client][name] = kept[client][name] - alpha * moved[client]
                held["h"][name] = held["h"][name] - alpha / population * sum(
                    moved.values()
                )
                mean = mean - held["h"][name] / alpha
            change = mean - anchor[name]
            if server == "mean":
                new = mean
            elif server == "momentum":
                own_beta = beta ** (apart / base_interval)
                held["m"][name] = own_beta * held["m"][name] + change
                ahead = (
                    change + own_beta * held["m"][name] if nesterov else held["m"][name]
                )
                new = anchor[name] + server_rate * ahead
            else:
                own_beta1, own_beta2 = (
                    beta1 ** (apart / base_interval),
                    beta2 ** (apart / base_interval),
                )
                before = held["v"].get(name, torch.full_like(mean, epsilon**2))
                held["m"][name] = own_beta1 * held["m"][name] + (1 - own_beta1) * change
                if server == "adam":
                    held["v"][name] = own_beta2 * before + (1 - own_beta2) * change**2
                else:
                    held["v"][name] = before - (1 - own_beta2) * change**2 * torch.sign(
                        before - change**2
                    )
                new = anchor[name] + server_rate * held["m"][name] / (
                    held["v"][name].sqrt() + epsilon
                )
            averaged_at[name] = done
            for module in (model, *copies.values()):
                dict(module.named_parameters())[name].data.copy_(new)
        for name in statistics:
            mean = sum(
                weights[client] * copies[client].state_dict()[name].double()
                for client in clients
            ).float()
            for module in (model, *copies.values()):
                module.state_dict()[name].copy_(mean)

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
                    for client in clients
                ),
                "down": down,
            }
        )
        if done % cycle == 0 or done == iterations:
            if average_steps is not None:
                now = {
                    name: tensor.clone() for name, tensor in model.state_dict().items()
                }
                share = math.exp(-(done - (done - 1) // cycle * cycle) / average_steps)
                if average is None:
                    average = now
                for name, tensor in now.items():
                    if tensor.is_floating_point():
                        average[name] = share * average[name] + (1 - share) * tensor
            if done % cycle == 0 and any(discrepancy.values()):
                long = lengthened(kernels, discrepancy, sizes)
                intervals = {
                    name: cycle if name in long else base_interval for name in sizes
                }
        step, fresh = done, due
    return {
        "rounds": rounds,
        "intervals": intervals,
        "kept": kept,
        "held": held,
        "average": average,
    }


def due_after(done, cycle, intervals, iterations):
    if done % cycle == 0 or done == iterations:
        return list(intervals)
    return [
        name for name, interval in intervals.items() if done % cycle % interval == 0
    ]


def local_steps(pace, base_interval, first, last):
    """The numbers of a client's own steps while the schedule goes from `first` to `last`."""
    if pace is None:
        return list(range(first, last))
    numbers = []
    for step in range(first, last):
        # In every base interval the client's steps are spread evenly, beginning with the interval.
        interval, into = divmod(step, base_interval)
        for own in range(pace):
            if own * base_interval // pace == into:
                numbers.append(interval * pace + own)
    return numbers


def how_far(count, momentum):
    """How far a constant gradient of one goes in so many steps of rate one from rest: ‖a‖₁ of FedNova."""
    velocity, distance = 0.0, 0.0
    for _ in range(count):
        velocity = momentum * velocity + 1.0
        distance += velocity
    return distance
