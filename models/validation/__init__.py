"""How good a ranking is, and folds that say so of graphs never seen."""
