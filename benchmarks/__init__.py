"""The figures that the documentation names; never part of the tests."""
