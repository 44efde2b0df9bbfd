"""A whole job within limits of time and memory: the plan, its costs, steps in processes of their own."""
