"""Local SGD over several processes with layer-wise averaging, in a plain torch.distributed program.

    torchrun --nproc-per-node 2 examples/torchrun_averager.py

Each rank trains on its own share of the embedded digits. The one fedlama line is the averager; with torch alone it
would read ``averager = PeriodicModelAverager(period=4)``.
"""

import torch
import torch.distributed as dist
from torch.nn.functional import cross_entropy

import fedlama

STEPS = 480


def main() -> None:
    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)  # the same initial weights on every rank
    torch.set_num_threads(1)

    data = fedlama.data.digits()
    x_local, y_local = data.inputs(data.x_train[rank::size]), data.y_train[rank::size]
    model = fedlama.models.small_cnn(classes=10)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    averager = fedlama.LayerwiseModelAverager(model, base_interval=4, increase_factor=4)

    draws = torch.Generator().manual_seed(1000 + rank)
    for _ in range(STEPS):
        batch = torch.randint(len(x_local), (16,), generator=draws)
        optimizer.zero_grad()
        cross_entropy(model(x_local[batch]), y_local[batch]).backward()
        optimizer.step()
        averager.average_parameters(model.parameters())
    averager.average_all()  # the training may end inside a cycle

    if rank == 0:
        with torch.no_grad():
            hits = model(data.inputs(data.x_test)).argmax(dim=1) == data.y_test
        every_time = (
            sum(averager.ledger.sizes) * 4 * (STEPS // averager.policy.base_interval)
        )
        print(f"accuracy {hits.double().mean():.1%}")
        print(
            f"sent {averager.sent_bytes:,} bytes per rank, {averager.sent_bytes / every_time:.0%} of full averaging"
        )
        for layer, count in zip(
            averager.layout.layers, averager.ledger.aggregations, strict=True
        ):
            print(
                f"  {layer.name:14} {layer.size:6,} parameters, averaged {count:3} times"
            )
    dist.barrier()  # nobody leaves while another is still at work: gloo may abort there
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
