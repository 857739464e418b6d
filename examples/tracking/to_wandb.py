"""Records to Weights & Biases while a run is going: `simulate(…, on_record=ToWandb(wandb.init(project="mine")))`."""


class ToWandb:
    def __init__(self, run):
        self.run = run

    def __call__(self, record):
        numbers = {
            "train/loss": record.loss,
            "bytes/uplink": record.uplink_bytes,
            "layers due": len(record.due),
        }
        if record.test_loss is not None:  # where the global model was evaluated
            numbers["test/loss"] = record.test_loss
        if record.accuracy is not None:
            numbers["test/accuracy"] = record.accuracy
        for name, value in record.metrics.items():  # a metric of your own
            numbers[f"test/{name}"] = value
        self.run.log(numbers, step=record.step)
