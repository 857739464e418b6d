"""FedLAMA on Flower with the embedded digits."""
