"""`osgym task`: task files checked, written and run without a model."""
