"""Clew's benchmarks: what a step costs in time and bytes, against stated targets. Run them with `scripts/bench`."""
