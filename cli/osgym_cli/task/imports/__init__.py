"""`osgym task import`: task sets of other projects become task files of ours. Nothing of a set is run."""
