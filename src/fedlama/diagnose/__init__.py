"""Before a long run: what the theory and a first cycle say about a federation.

`diagnose` estimates the constants of Theorem 5.3 (L, σ², β², κ²) on a few batches, measures every layer's d_l in
the first cycles, and predicts what each policy would send.
"""

from fedlama.diagnose.diagnosis import diagnose
from fedlama.diagnose.findings import Diagnosis
from fedlama.diagnose.layers import LayerProfile, Prediction

__all__ = ["Diagnosis", "LayerProfile", "Prediction", "diagnose"]
