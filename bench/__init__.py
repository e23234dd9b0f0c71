"""Measurements of this project that anybody can repeat: `make bench` prints the table of the README.

`programs/` are the processes of a measurement, `stage.py` starts them, each file of `measures/` measures one thing.
Nothing here ships.
"""
