"""Mutation testing in parts: operators.py changes a module, trial.py runs the tests on it. See tools/mutate.py."""
