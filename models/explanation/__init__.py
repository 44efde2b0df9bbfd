"""Why a model ranks as it does: parts of scores that add up to them, and how far a ranking can be trusted."""
