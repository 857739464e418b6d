"""Before a long run: what the theory and a first cycle say about a federation.

`diagnose` estimates the constants of Theorem 5.3 (L, σ², β², κ²) on a few batches, measures every layer's d_l in a
first cycle, and predicts what each policy would send.
"""

from fedlama.diagnose.diagnosis import Diagnosis, diagnose

__all__ = ["Diagnosis", "diagnose"]
