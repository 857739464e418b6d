"""Runs of randomly drawn small configurations that are killed, stopped or run out of disk and are resumed.

Everything is checked that must hold of any run.

    python -m tests.soak --minutes 10 [--seed 0]

A trial is a function of its number, so `--seed N --trials 1` repeats trial N.
"""
