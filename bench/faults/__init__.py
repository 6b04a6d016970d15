"""The public fault table: one small agent under several libraries, killed at every point that has a name."""
