"""Workers, measured: what a claim costs, and how many runs four processes get through, beside others."""
