"""Records to TensorBoard while a run is going: `simulate(…, on_record=ToTensorBoard("runs/mine"))`."""

from torch.utils.tensorboard import SummaryWriter


class ToTensorBoard:
    def __init__(self, folder):
        self.writer = SummaryWriter(folder)

    def __call__(self, record):
        self.writer.add_scalar("train/loss", record.loss, record.step)
        self.writer.add_scalar("bytes/uplink", record.uplink_bytes, record.step)
        if record.test_loss is not None:  # where the global model was evaluated
            self.writer.add_scalar("test/loss", record.test_loss, record.step)
        if record.accuracy is not None:
            self.writer.add_scalar("test/accuracy", record.accuracy, record.step)
        for name, value in record.metrics.items():  # a metric of your own
            self.writer.add_scalar(f"test/{name}", value, record.step)
        self.writer.flush()
