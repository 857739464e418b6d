"""What is learnt: the LEAF CNN of 26 MB, on the embedded digits enlarged to its 28×28 pixels."""

import torch

import fedlama
from fedlama.data import digits
from fedlama.models import leaf_cnn

CLIENTS = 2
SEED = 3
INTERVAL = 6
RATE = 0.05
BATCH = 16
PARTITION = fedlama.IID(clients=CLIENTS)
LOCAL = fedlama.SGD(learning_rate=RATE, batch_size=BATCH)


def network():
    return leaf_cnn()


def data():
    small = digits()
    return fedlama.data.arrays(
        _enlarged(small.x_train),
        small.y_train,
        _enlarged(small.x_test),
        small.y_test,
        name="digits",
    )


def _enlarged(pixels):
    images = pixels.reshape(-1, 1, 8, 8).float() / 16
    return torch.nn.functional.interpolate(images, size=(28, 28), mode="bilinear")


def evaluate(arrays):
    """Accuracy and loss of the global model on the test digits."""
    samples = data()
    module = network()
    module.load_state_dict(arrays.to_torch_state_dict())
    with torch.no_grad():
        outputs = module(samples.inputs(samples.x_test))
    right = (outputs.argmax(dim=1) == samples.y_test).double().mean()
    loss = torch.nn.functional.cross_entropy(outputs, samples.y_test)
    return {"accuracy": float(right), "loss": float(loss)}
