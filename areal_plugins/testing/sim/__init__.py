"""Whole experiments on a virtual clock, with faults from a seed, watched at every event.

One seed is one experiment: its sizes, how long everything takes, what goes wrong and when, and when the
controller itself is killed and resumed. The controller, the services of the workers and every mock are the
real ones; only the clock, the wires between the workers and the disk are in the hands of the seed.

`schedule` draws, `wires` carries calls and has them fail, `disk` does so with files, `loop` counts events,
`watch` holds the invariants against what it sees, `world` runs one seed from start to end.
"""
