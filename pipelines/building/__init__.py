"""Graph files to stored rows, by the processes of this machine or the workers of a cluster."""
