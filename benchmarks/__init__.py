"""`python -m benchmarks`: fedlama beside the limit and beside other simulators, in one table."""
