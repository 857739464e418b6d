"""The convergence theory held against exact numbers, on clients with quadratic objectives.

    python -m tests.theory

prints how tight the lemmas and the theorem are and draws the pictures of `docs/theory.md`.
"""
