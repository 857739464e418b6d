"""What runs say, as plain values: settings, means over seeds, curves, the network replay. No words, nothing drawn."""
