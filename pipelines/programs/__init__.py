"""Own programs: loaded, compiled once, written as graph files with their labels."""
