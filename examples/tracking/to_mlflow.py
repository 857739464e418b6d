"""Records to MLflow while a run is going: `with mlflow.start_run(): simulate(…, on_record=to_mlflow)`."""

import mlflow


def to_mlflow(record):
    numbers = {"train_loss": record.loss, "uplink_bytes": record.uplink_bytes}
    if record.test_loss is not None:  # where the global model was evaluated
        numbers["test_loss"] = record.test_loss
    if record.accuracy is not None:
        numbers["test_accuracy"] = record.accuracy
    for name, value in record.metrics.items():  # a metric of your own
        numbers[f"test_{name}"] = value
    mlflow.log_metrics(numbers, step=record.step)
