"""The client: fedlama's own, with a module, data and a local rule."""

from digits_app.task import LOCAL, PARTITION, network
from fedlama.data import digits
from fedlama.flower import client_app

app = client_app(network, digits(), local=LOCAL, partition=PARTITION)
