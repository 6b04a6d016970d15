"""Clew under other frameworks, a package for each. They use Clew's public API and nothing else of it."""
