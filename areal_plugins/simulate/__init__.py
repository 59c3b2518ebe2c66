"""A run on hardware that nobody here owns: the unchanged controller, on a virtual clock, over cost models.

`hardware` and `shape` are what is known of devices and models, `costs` says how long work takes on them,
`lengths` how long answers are. `engine` and `workers` stand in for the workers of a run; `plan` puts them in
the place of a spec's own, `outcome` reads what came of it, and `split` looks for the best use of the devices.
"""
