"""FedLAMA on Flower's SecAgg+."""
