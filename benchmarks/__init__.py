"""`python -m benchmarks`: fedlama beside a bare loop and beside other simulators, in one table."""
