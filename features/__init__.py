"""Features: one file per physical idea, combined by `assemble`.

A *block* (`xlarank.features.block`) declares its columns. Blocks read shared intermediate results from a *context*
(`program`, `layout`, `tile`); those of layouts are computed once per distinct row and looked up by configuration.
"""
