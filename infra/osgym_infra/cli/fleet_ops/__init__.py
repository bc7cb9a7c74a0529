"""`osgym fleet status|logs|doctor|run|drain|ssh`: operating many hosts by hand."""
